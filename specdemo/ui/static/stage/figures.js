// The headline figures and the counts of passes and tokens. The server computes them; this module only formats them.

import { write } from "../common/dom.js";
import { BASELINE } from "./trace.js";
import { hasResidual, isDisturbed, isSlower, rangeWords, share, times } from "../common/words.js";

const fixedDigits = (digits) => (value) => value.toFixed(digits);
const FORMATS = {
  speedup: times,
  tau: fixedDigits(2),
  alpha_compared: share,
  passes: String,
  passes_saved: String,
  tokens_per_s: fixedDigits(1),
  baseline_tokens_per_s: fixedDigits(1),
  draft_alone_tokens_per_s: fixedDigits(1),
  seconds: fixedDigits(2),
  baseline_seconds: fixedDigits(2),
  draft_alone_seconds: fixedDigits(2),
  identical: (value) => (value ? "=" : "≠"),
};
const LABELS = {
  speedup: (totals, rule, end, trust) => speedupLabel(totals, trust),
  passes: ({ passes }) => (passes === 1 ? "target pass" : "target passes"),
  identical: ({ identical, divergence, tokens, baseline_tokens: alone }, rule, end) => {
    if (identical && end) return tokens === alone ? "same text" : "same until one ends";
    if (identical) return "same text so far";
    if (identical === false) return `differs at token ${divergence + 1}`;
    return alone ? "same distribution" : "same text?";
  },
  diverges: ({ draft_divergence: divergence, draft_alone_tokens: tokens }, rule, end) => {
    if (hasResidual(rule)) return "independent sample, not compared";
    if (divergence !== null) return `differs from the target at token ${divergence + 1}`;
    if (!tokens) return "";
    return end ? "same text as the target" : "same as the target so far";
  },
};
const FULL_ROW = 24; // if a row has more bricks than this, all bricks get narrower

/**
 * The label below the speedup. `trust` says how far it can be trusted, see `Trace.trustAt`; a server that does not know gives
 * no `spread` and no `doubt`.
 */
export function speedupLabel({ speedup, baseline_tokens: alone }, { spread, doubt, speedups = [] }) {
  if (speedup === null && alone) return "shown after 8 tokens";
  const word = isSlower(speedup) ? "slower" : "speedup";
  if (isDisturbed({ doubt })) return `${word}, ${doubt}`;
  if (speedups.length > 1) return `${word}, median of ${speedups.length}`;
  return speedup !== null && spread ? `${word} ${rangeWords(spread)}` : word;
}

export class Figures {
  constructor(root) {
    this.root = root;
    this.figures = [...root.querySelectorAll("[data-figure]")];
    this.labels = [...root.querySelectorAll("[data-label]")].map((node) => [node, node.textContent]);
    this.clear();
  }

  /**
   * Show the figures of a moment; `totals` is null before the first round, `end` is the event of the run's end if these
   * are its final figures, and `trust` says how far the speedup can be trusted.
   */
  show(totals, rule, end, trust) {
    if (totals === this.shown) return;
    this.shown = totals;
    if (!totals) return this.clear();
    for (const node of this.figures) {
      const value = totals[node.dataset.figure] ?? null;
      setData(node, "value", value);
      write(node, value === null ? unknownFigure(node, totals) : FORMATS[node.dataset.figure](value));
    }
    for (const [node] of this.labels) write(node, LABELS[node.dataset.label](totals, rule, end, trust));
    // Green promises that drafts made the run faster.
    setData(this.root, "faster", totals.speedup !== null && !isSlower(totals.speedup) && !trust.doubt);
    setData(this.root, "identical", totals.identical);
    this.root.toggleAttribute("data-diverged", totals.draft_divergence !== null);
  }

  clear() {
    this.shown = null;
    for (const node of this.figures) {
      delete node.dataset.value;
      write(node, "–");
    }
    for (const [node, text] of this.labels) write(node, text);
    delete this.root.dataset.faster;
    delete this.root.dataset.identical;
  }
}

/** The passes and tokens so far, counted, and drawn as bricks of one size. */
export class Bricks {
  constructor(root) {
    this.lanes = [...root.querySelectorAll("[data-lane] .sd-passes b")].map((count) => [count.closest("[data-lane]").dataset.lane, count]);
    this.rows = [...root.querySelectorAll("[data-bricks]")].map((row) => [row.dataset.bricks, row]);
  }

  /**
   * Show the state of every lane (see `Trace.stateAt`) and the figures of the moment, null before the first verdict. Each
   * round is one target pass, which is counted at its verdict. If only pieces of text are known, no passes are. The bricks
   * are those of the lane in `focus`.
   */
  show(state, totals, arePieces, focus) {
    for (const [lane, count] of this.lanes) write(count, arePieces ? "–" : String(state[lane]?.settled ?? 0));
    const { passes = 0, passes_saved: saved = 0, tokens = 0 } = totals ?? {};
    const alone = state[BASELINE]?.settled ?? 0;
    const ofAll = { passes, tokens, alone: passes === null || saved === null ? null : passes + saved };
    const counts = focus === BASELINE ? { passes: alone, tokens: alone, alone: null } : ofAll;
    // Set the properties on the rows. On their common parent they would make the browser restyle all content of the parent.
    for (const [name, row] of this.rows) {
      write(row.previousElementSibling, String(counts[name] ?? "–"));
      row.style.setProperty("--bricks", counts[name] ?? 0);
      row.style.setProperty("--most-bricks", Math.max(FULL_ROW, ...Object.values(counts)));
    }
  }
}

// Does nothing if the value is the same, because setting it would make the browser restyle.
function setData(node, name, value) {
  if (node.dataset[name] !== String(value)) node.dataset[name] = String(value);
}

function unknownFigure(node, totals) {
  return node.dataset.figure === "identical" && totals.baseline_tokens ? "≈" : "–";
}
