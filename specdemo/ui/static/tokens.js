// Token bytes -> text in the DOM. Everything a model or visitor wrote becomes a text node, never markup.

const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });
const EMPTY = new Uint8Array(0);
// Line breaks, tabs, other control characters, and the marks that reorder or hide text.
const UNSEEN = /([\n\t\p{Cc}\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff])/u;

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

  /** Text that becomes complete with this token after unfinished bytes `tail`, and the bytes still open. */
  decode(id, tail = EMPTY) {
    const own = this.bytes.get(id) ?? EMPTY;
    const bytes = new Uint8Array(tail.length + own.length);
    bytes.set(tail);
    bytes.set(own, tail.length);
    const complete = bytes.length - openBytes(bytes);
    return { text: UTF8.decode(bytes.subarray(0, complete)), tail: bytes.slice(complete) };
  }
}

/** How many bytes at the end belong to a UTF-8 character that is not complete yet. */
function openBytes(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back];
    if ((byte & 0xc0) === 0x80) continue;
    const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return needed > back ? back : 0;
  }
  return 0;
}

/** Put text into a span; what the eye cannot see gets a small chip, a line break also breaks the line. */
export function fill(span, text, special) {
  if (special) {
    span.append(chip(text, text));
    return;
  }
  for (const part of text.split(UNSEEN)) {
    if (!UNSEEN.test(part)) span.append(part);
    else if (part === "\n") span.append(chip("↵"), lineBreak());
    else if (part === "\t") span.append(chip("⇥"), part);
    else span.append(chip(`U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`));
  }
  if (!text) span.dataset.partial = "true";
}

// A chip's mark is drawn by CSS from an attribute, so that copied text holds only what the model wrote.
function chip(mark, text = "") {
  const element = document.createElement("span");
  element.className = "sd-chip";
  if (text) element.textContent = text;
  else element.dataset.mark = mark;
  return element;
}

// In a span of its own, so that a discarded line break need not break the line.
function lineBreak() {
  const element = document.createElement("span");
  element.className = "sd-break";
  element.textContent = "\n";
  return element;
}

// Drafters that put every token forward as certain.
const COPYING = new Set(["prompt-lookup", "scripted"]);

/** What became of a drafted token, in a few words with both probabilities. */
export function draftTitle(token, round) {
  const target = `target p = ${chance(token.raw_p ?? token.p)}`;
  const draft = COPYING.has(round.drafted_by) ? "copied" : `draft q = ${chance(token.raw_q ?? token.q)}`;
  return `${draftWords(token, round)} · ${draft}, ${target}`;
}

function draftWords(token, round) {
  if (token.status === "accepted") return "accepted by the target";
  if (token.rejected) return "rejected by the target";
  const refused = round.drafted.some((other) => other.rejected);
  return refused ? "discarded: drafted after the rejected token" : "discarded: the run ended before it";
}

/** Where the target's own token came from, in a few words with its probability. */
export function emissionTitle(emission) {
  const words =
    emission.status === "corrected"
      ? "corrected: the target's choice in place of the rejected token"
      : "bonus: the target's free token after a fully accepted draft";
  return `${words} · p = ${chance(emission.raw_prob ?? emission.prob)}`;
}

export function baselineTitle(emission) {
  return `one target pass · p = ${chance(emission.raw_prob ?? emission.prob)}`;
}

function chance(value) {
  if (value === null || value === undefined) return "unknown";
  return value !== 0 && value < 0.001 ? value.toExponential(1) : value.toFixed(3);
}
