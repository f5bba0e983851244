// Token bytes as text in the DOM. Text of models and visitors only becomes text nodes, never markup.

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

  /**
   * Append a token to the unfinished bytes `tail`; return the text that is now complete, and the new unfinished
   * bytes.
   */
  decode(id, tail = NO_BYTES) {
    const own = this.bytes.get(id) ?? NO_BYTES;
    const bytes = new Uint8Array(tail.length + own.length);
    bytes.set(tail);
    bytes.set(own, tail.length);
    const complete = bytes.length - openBytes(bytes);
    return { text: UTF8.decode(bytes.subarray(0, complete)), tail: bytes.slice(complete) };
  }
}

/** Show a single token in `element`, with the marks of `blankMarks`, and bytes of an incomplete character as numbers. */
export function fillLabel(element, id, pieces) {
  element.replaceChildren();
  const { text, tail } = pieces.decode(id);
  fill(element, blankMarks(text), pieces.specials.has(id));
  for (const byte of tail) element.append(chip(`0x${byte.toString(16).toUpperCase().padStart(2, "0")}`));
}

/** A token's text in which spaces and line breaks are visible. */
export function blankMarks(text) {
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

/**
 * Return `{ span, end }`: the span of a token, and the end of the text after it. The argument `end` is that of the text
 * before, undefined at the start. An end is `{ tail, broken, code }`: unfinished bytes, true after a line break, and true
 * inside a block of code that begins and ends with ```.
 */
export function tokenSpan(id, end, pieces) {
  const { text, tail } = pieces.decode(id, end?.tail);
  const span = document.createElement("span");
  span.className = "sd-token";
  fill(span, text, pieces.specials.has(id), end?.broken);
  // The style sheet shows these marks if the token is rejected.
  if (/^[ \n]* [ \n]*$/.test(text)) span.dataset.blank = blankMarks(text);
  const fences = text.split("```").length - 1;
  const code = Boolean(end?.code) !== (fences % 2 === 1);
  if (code || fences) span.dataset.code = "true";
  return { span, end: { tail, broken: text ? text.endsWith("\n") : end?.broken, code } };
}

/**
 * Put text into a span, with small chips for invisible characters. Consecutive line breaks start only one new line, or
 * none if the text before the span ends with a line break (`broken`).
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

/** Text for places that cannot have chips: invisible characters, except line breaks and tabs, are replaced by names. */
export function named(text) {
  return text.split(UNSEEN).map((part) => (UNSEEN.test(part) && !/[\n\t]/.test(part) ? codePoint(part) : part)).join("");
}

function codePoint(mark) {
  return `U+${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

// CSS draws the mark of a chip from an attribute, so that copied text contains only what the model wrote.
function chip(mark, text = "") {
  const element = document.createElement("span");
  element.className = "sd-chip";
  if (text) element.textContent = text;
  else element.dataset.mark = mark;
  return element;
}

// Each line break has its own span, so that CSS can hide the breaks of discarded tokens. Copied text contains all line
// breaks; the page shows them as one, because empty lines would take up rows.
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
