// Figures of the lab as they stand on the page, and what is asked of the server. No DOM.

/** A figure as text, "–" where it is not defined. */
export const shownAs = {
  times: (value) => (value === null ? "–" : `${value.toFixed(2)}×`),
  share: (value) => (value === null ? "–" : `${Math.round(100 * value)}%`),
  two: (value) => (value === null ? "–" : value.toFixed(2)),
  one: (value) => (value === null ? "–" : value.toFixed(1)),
};

/** A slider's value in words. */
export const sliderWords = {
  alpha: shownAs.share,
  k: (value) => String(value),
  c: (value) => String(Number(value.toFixed(3))),
  growth: (value) => `+${Number((100 * value).toFixed(1))}%`,
};

/** The sliders of a run's point, each within its slider's reach (`[min, max]` by name). */
export function slidersOf({ alpha, k, c, growth }, reach) {
  const values = { alpha, k: Math.round(k), c, growth };
  const within = ([name, value]) => [name, Math.min(Math.max(value, reach[name][0]), reach[name][1])];
  return Object.fromEntries(Object.entries(values).map(within));
}

/** A run beside its theory, in one sentence. */
export function runWords({ alpha, k, c, speedup, s_theory: theory }) {
  const measured = speedup === null ? "" : `${shownAs.times(speedup)} measured, `;
  return `The last run (α ${shownAs.share(alpha)}, k ${Number(k.toFixed(1))}, c ${Number(c.toFixed(3))}): ${measured}${shownAs.times(theory)} in theory.`;
}

/** The cells of a measured point, in the order of the table's columns. */
export function cellsOf({ label, speedup, s_theory: theory, alpha, tau, tokens_per_s: rate, baseline_tokens_per_s: alone }) {
  return [label, shownAs.times(speedup), shownAs.times(theory), shownAs.share(alpha), shownAs.two(tau), shownAs.one(rate), shownAs.one(alone)];
}

/** What one side of a condition is, and the figures under its speedup. */
export function sideWords({ label, alpha, tau, c }) {
  const cost = c === null ? "–" : Number(c.toPrecision(2));
  const pairs = [["α", shownAs.share(alpha)], ["τ", shownAs.two(tau)], ["c", cost]];
  return [label, pairs.map((pair) => pair.join("\u00a0")).join(" · ")];
}

const NUMBER_FIELDS = ["max_new_tokens", "prompts", "k", "temperature"];

/** A form's fields, all texts, as a request; what is not a number goes as it is, for the server to refuse. */
export function requestOf(fields) {
  const value = ([name, text]) => [name, NUMBER_FIELDS.includes(name) && text.trim() && !Number.isNaN(Number(text)) ? Number(text) : text];
  return Object.fromEntries(Object.entries(fields).map(value));
}
