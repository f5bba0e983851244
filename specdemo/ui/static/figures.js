// Headline figures: shown as the server computed them, only formatted here.

const fixed = (digits) => (value) => value.toFixed(digits);
const whole = (value) => String(value);
const FORMATS = {
  speedup: (value) => `${value.toFixed(2)}×`,
  tau: fixed(2),
  alpha_compared: (value) => `${Math.round(value * 100)}%`,
  passes: whole,
  passes_saved: whole,
  tokens_per_s: fixed(1),
  baseline_tokens_per_s: fixed(1),
  seconds: fixed(2),
  baseline_seconds: fixed(2),
  identical: (value) => (value ? "=" : "≠"),
};

const LABELS = {
  speedup: ({ speedup }) => {
    if (speedup === null) return "speedup over the target alone";
    return speedup >= 1 ? "faster than the target alone" : "slower than the target alone";
  },
  passes: ({ passes, tokens }) => `target ${passes === 1 ? "pass" : "passes"} instead of ${tokens}`,
  identical: ({ identical, divergence, baseline_tokens: alone }) => {
    if (identical) return "identical so far, token for token";
    if (identical === false) return `texts differ from token ${divergence + 1} on`;
    return alone ? "same distribution, another draw" : "same text in both lanes?";
  },
};

export function showFigures(root, totals) {
  for (const element of root.querySelectorAll("[data-figure]")) {
    const value = totals[element.dataset.figure] ?? null;
    element.dataset.value = String(value);
    element.textContent = value === null ? unknown(element, totals) : FORMATS[element.dataset.figure](value);
  }
  for (const element of root.querySelectorAll("[data-label]")) {
    element.textContent = LABELS[element.dataset.label](totals);
  }
  root.dataset.slower = String(totals.speedup !== null && totals.speedup < 1);
  root.dataset.identical = String(totals.identical);
}

export function clearFigures(root, initialLabels) {
  for (const element of root.querySelectorAll("[data-figure]")) {
    delete element.dataset.value;
    element.textContent = "–";
  }
  for (const [element, text] of initialLabels) element.textContent = text;
  delete root.dataset.slower;
  delete root.dataset.identical;
}

/** The labels as the page came, to return to before each run. */
export function labelsOf(root) {
  return [...root.querySelectorAll("[data-label]")].map((element) => [element, element.textContent]);
}

function unknown(element, totals) {
  return element.dataset.figure === "identical" && totals.baseline_tokens ? "≈" : "–";
}
