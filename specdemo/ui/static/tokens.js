// Token bytes as text in the DOM. Text of models and visitors becomes text nodes, never markup.

const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });
const NO_BYTES = new Uint8Array(0);
// Line breaks, tabs, other control characters, and the marks that reorder or hide text.
const UNSEEN = /(\n+|[\t\p{Cc}\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}])/u;

/** The bytes of every token seen in a run. */
export class Pieces {
  constructor() {
    this.bytes = new Map();
    this.specials = new Set();
  }

  add(encoded, specials = []) {
    for (const [id, base64] of Object.entries(encoded)) {
      this.bytes.set(Number(id), Uint8Array.from(atob(base64), (char) => char.charCodeAt(0)));
    }
    for (const id of specials) this.specials.add(id);
  }

  /** Return the text completed by this token after the unfinished bytes `tail`, and the bytes still unfinished. */
  decode(id, tail = NO_BYTES) {
    const own = this.bytes.get(id) ?? NO_BYTES;
    const bytes = new Uint8Array(tail.length + own.length);
    bytes.set(tail);
    bytes.set(own, tail.length);
    const complete = bytes.length - openBytes(bytes);
    return { text: UTF8.decode(bytes.subarray(0, complete)), tail: bytes.slice(complete) };
  }
}

/** Show a single token in `element`: spaces visible, bytes of an unfinished character as numbers. */
export function fillLabel(element, id, pieces) {
  element.replaceChildren();
  const { text, tail } = pieces.decode(id);
  fill(element, text.replaceAll(" ", "␣"), pieces.specials.has(id));
  for (const byte of tail) element.append(chip(`0x${byte.toString(16).toUpperCase().padStart(2, "0")}`));
}

function blankMarks(text) {
  return text.replaceAll("\n", "↵").replace(/ {4,}/g, ({ length }) => `␣×${length}`).replaceAll(" ", "␣");
}

/** The number of bytes at the end that belong to an incomplete UTF-8 character. */
function openBytes(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back];
    if ((byte & 0xc0) === 0x80) continue;
    const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return needed > back ? back : 0;
  }
  return 0;
}

/** Return the span of a token and the `end` of the text with it; `end` of the text before, undefined at its start. */
export function tokenSpan(id, end, pieces) {
  const { text, tail } = pieces.decode(id, end?.tail);
  const span = document.createElement("span");
  span.className = "sd-token";
  fill(span, text, pieces.specials.has(id), end?.broken);
  if (/^[ \n]* [ \n]*$/.test(text)) span.dataset.blank = blankMarks(text); // shown if it is rejected
  return { span, end: { tail, broken: text ? text.endsWith("\n") : end?.broken } };
}

/**
 * Put text into a span, with small chips for invisible characters. Consecutive line breaks start one new line, or none
 * if the text before ends with one (`broken`).
 */
export function fill(span, text, special, broken = false) {
  if (special) return span.append(chip(text, text));
  let atStart = broken;
  for (const part of text.split(UNSEEN)) {
    if (!UNSEEN.test(part)) span.append(part);
    else if (part.startsWith("\n")) span.append(...lineBreaks(part.length, atStart));
    else if (part === "\t") span.append(chip("⇥"), part);
    else span.append(chip(codePoint(part)));
    if (part) atStart = false;
  }
  if (!text) span.dataset.partial = "true";
}

/** Text with the names of invisible characters, except line breaks and tabs, for places without chips. */
export function named(text) {
  return text.split(UNSEEN).map((part) => (UNSEEN.test(part) && !/[\n\t]/.test(part) ? codePoint(part) : part)).join("");
}

function codePoint(mark) {
  return `U+${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

// CSS draws a chip's mark from an attribute, so that copied text has only what the model wrote.
function chip(mark, text = "") {
  const element = document.createElement("span");
  element.className = "sd-chip";
  if (text) element.textContent = text;
  else element.dataset.mark = mark;
  return element;
}

// Each break has its own span, so that those of discarded tokens need not break the line. Copied text has all of them;
// the page starts one line, since empty lines would cost rows.
function lineBreaks(count, atStart) {
  const mark = chip("↵".repeat(count));
  mark.classList.add("sd-return");
  mark.toggleAttribute("data-at-start", atStart);
  const breaks = Array.from({ length: count }, (_, index) => {
    const element = document.createElement("span");
    element.className = index || atStart ? "sd-break sd-break-more" : "sd-break";
    element.textContent = "\n";
    return element;
  });
  return [mark, ...breaks];
}
