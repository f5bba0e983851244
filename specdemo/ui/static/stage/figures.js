// The headline figures and the counts of target passes. The server computes them; this module only formats them.

import { write } from "../common/dom.js";
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
    if (identical === false) return `differs from token ${divergence + 1}`;
    return alone ? "same distribution" : "same text?";
  },
  diverges: ({ draft_divergence: divergence, draft_alone_tokens: tokens }, rule, end) => {
    if (hasResidual(rule)) return "independent sample, not compared";
    if (divergence !== null) return `differs from the target at token ${divergence + 1}`;
    if (!tokens) return "";
    return end ? "same text as the target" : "same as the target so far";
  },
};
const FULL_ROW = 40; // if a lane has more pass blocks than this, all blocks get narrower

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

/** The number of target passes of each lane, shown as blocks; a block has the same size in all lanes. */
export class PassBlocks {
  constructor(root) {
    this.rows = new Map();
    for (const row of root.querySelectorAll("[data-lane] .sd-passes")) {
      this.rows.set(row.closest("[data-lane]").dataset.lane, { row, count: row.querySelector("b"), shown: null });
    }
    this.most = FULL_ROW;
  }

  /**
   * Show the state of every lane (see `Trace.stateAt`). Each round is one target pass, which is counted at its
   * verdict. If only pieces of text are known, no passes are.
   */
  show(state, arePieces) {
    for (const [lane, entry] of this.rows) {
      const settled = arePieces ? 0 : (state[lane]?.settled ?? 0);
      if (entry.shown === settled && entry.arePieces === arePieces) continue;
      entry.shown = settled;
      entry.arePieces = arePieces;
      entry.count.textContent = arePieces ? "–" : settled;
      entry.row.style.setProperty("--passes", settled);
    }
    const most = Math.max(FULL_ROW, ...[...this.rows.values()].map(({ shown }) => shown));
    if (most === this.most) return;
    this.most = most;
    // Set the property on each row. On their common parent it would make the browser restyle all content of the parent.
    for (const { row } of this.rows.values()) row.style.setProperty("--most-passes", most);
  }
}

// Does nothing if the value is the same, because setting it would make the browser restyle.
function setData(node, name, value) {
  if (node.dataset[name] !== String(value)) node.dataset[name] = String(value);
}

function unknownFigure(node, totals) {
  return node.dataset.figure === "identical" && totals.baseline_tokens ? "≈" : "–";
}
