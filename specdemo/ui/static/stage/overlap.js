// The figure of p and q at one position: two overlapping bars for each token. The common part is what is accepted, and
// from p − q the correction is drawn. The microscope, a lesson and the worksheet show it.

import { element } from "../common/dom.js";
import { percent } from "../common/words.js";

const ROWS = 6;
/** The example of the lesson and of the worksheet. */
export const EXAMPLE = [
  { name: "the", q: 0.5, p: 0.3, isDrafted: true },
  { name: "a", q: 0.3, p: 0.4 },
  { name: "an", q: 0.05, p: 0.2 },
  { name: "his", q: 0.15, p: 0.1 },
];
export const EXAMPLE_U = 0.72;

/** The rows for a draft token, as `overlapFigure` takes them; a copied draft is certain of its token. */
export function overlapRows(token, copied) {
  const q = new Map(copied ? [[token.id, 1]] : [...token.draft_top, [token.id, token.q]]);
  const p = new Map([...token.target_top, [token.id, token.p]]);
  const others = [...new Set([...q.keys(), ...p.keys()])].filter((id) => id !== token.id);
  const height = (id) => Math.max(q.get(id) ?? 0, p.get(id) ?? 0);
  const shown = [token.id, ...others.sort((a, b) => height(b) - height(a)).slice(0, ROWS - 1)];
  const row = (id) => ({ id, q: q.get(id), p: p.get(id), mostQ: beyond(q), mostP: beyond(p), isDrafted: id === token.id });
  return shown.sort((a, b) => height(b) - height(a)).map(row);
}

// The highest probability that a token can have which is not in a list of the most likely ones.
function beyond(listed) {
  const values = [...listed.values()];
  return Math.max(0, Math.min(...values, 1 - values.reduce((sum, value) => sum + value, 0)));
}

/**
 * The figure. Each row has `q` and `p`, of which one may be undefined but is at most `mostQ` or `mostP`; `isDrafted` marks
 * the row of the draft token. `label(row)` is its name, as text or an element. `u` is the number drawn, or null: the tick
 * at u·q is in the common part if u is below p/q.
 */
export function overlapFigure(rows, u, label) {
  const longest = Math.max(...rows.flatMap(({ q = 0, p = 0 }) => [q, p]));
  const lines = rows.map((row) => {
    const bar = element("i", "sd-overlap-bar", ...partsOf(row).map(([kind, from, to]) => part(kind, from / longest, to / longest)));
    if (row.isDrafted && u !== null) bar.append(part("drawn", (u * row.q) / longest, (u * row.q) / longest));
    const line = element("div", "", element("span", "", label(row)), bar, ...["q", "p"].map((name) => element("span", "", valueWords(row, name))));
    line.toggleAttribute("data-chosen", Boolean(row.isDrafted));
    return line;
  });
  const heads = ["", "", "q", "p"].map((name) => element("b", "", name));
  const keys = [["common", "common: accepted"], ["target", "p − q: correction"], ["draft", "q − p: rejected"], ["drawn", "number × q"]];
  const caption = element("figcaption", "", ...keys.map(([kind, words]) => element("span", "", part(kind), words)));
  return element("figure", "sd-overlap", element("div", "", ...heads), ...lines, caption);
}

/** The parts of a row's bar as `[kind, from, to]`. What depends on an unknown probability is "unknown". */
export function partsOf({ q, p, mostQ, mostP }) {
  const [draft, target] = [q ?? mostQ, p ?? mostP];
  const low = Math.min(draft, target, q ?? Infinity, p ?? Infinity);
  const isKnown = q !== undefined && p !== undefined;
  const high = isKnown ? Math.max(draft, target) : (q ?? p);
  const parts = [[isKnown ? "common" : "unknown", 0, low], [(q ?? 0) > (p ?? 0) ? "draft" : "target", low, high]];
  return [...parts.filter(([, from, to]) => to > from), ...(q === undefined ? [] : [["q", 0, q]]), ...(p === undefined ? [] : [["p", 0, p]])];
}

function valueWords(row, name) {
  const most = row[name === "q" ? "mostQ" : "mostP"];
  if (row[name] !== undefined) return percent(row[name]);
  return most ? `<${percent(most).replace("<", "")}` : "0%";
}

function part(kind, from = 0, to = 1) {
  const made = element("i", "");
  made.dataset.part = kind;
  made.style.setProperty("--from", from);
  made.style.setProperty("--to", to);
  return made;
}
