// The "?" next to a figure or chart: one sentence, the formula, and the numbers of the current run.

import { element } from "./dom.js";

const ID = "sd-help";
const EDGE_PX = 8;

export class Helps {
  /** Every button of `root` with a term in `data-help` opens that term, whenever it came to be there. */
  constructor(root) {
    this.root = root;
    this.button = null;
    this.totals = null;
    this.run = null;
    this.panel = element("div", "sd-help");
    this.panel.id = ID;
    this.panel.setAttribute("role", "note");
    root.addEventListener("click", (event) => this.press(event.target));
    document.addEventListener("pointerdown", (event) => this.leave(event.target));
    document.addEventListener("focusin", (event) => this.leave(event.target));
    // Ahead of all others whom Escape tells something: one press closes one thing.
    document.addEventListener("keydown", (event) => this.escape(event), true);
    for (const moved of ["scroll", "resize"]) window.addEventListener(moved, () => this.close());
  }

  /** The figures of the moment shown (null before the first round) and the run they are of. */
  show(totals, run) {
    if (totals === this.totals && run === this.run) return;
    this.totals = totals;
    this.run = run;
    if (this.button) this.fill();
  }

  press(target) {
    const more = target.closest?.("[data-more]");
    if (more) return this.turnTo(more.dataset.more);
    const button = target.closest?.("[data-help]");
    if (!button) return;
    if (button === this.button) this.close();
    else this.open(button);
  }

  open(button) {
    this.close();
    this.button = button;
    this.term = button.dataset.help;
    button.setAttribute("aria-expanded", "true");
    button.setAttribute("aria-controls", ID);
    button.after(this.panel);
    this.fill();
  }

  /** Another term in the same place. */
  turnTo(term) {
    this.term = term;
    this.fill();
    this.panel.querySelector("button").focus();
  }

  fill() {
    const { title, sentence, formula, numbers, more } = helpOn(this.term, this.totals, this.run);
    const turns = more.map((term) => {
      const turn = element("button", "sd-opener", termName(term));
      turn.type = "button";
      turn.dataset.more = term;
      return turn;
    });
    const words = [element("b", "", title), element("p", "", sentence)];
    const figures = [element("p", "sd-help-formula", formula), element("p", "sd-help-numbers", numbers)];
    const held = this.panel.contains(document.activeElement) ? document.activeElement.dataset.more : null;
    this.panel.replaceChildren(...words, ...figures, element("p", "sd-help-more", ...turns));
    this.panel.setAttribute("aria-label", title);
    turns.find((turn) => turn.dataset.more === held)?.focus();
    this.place();
  }

  // Below the button where there is room, else above; never beyond the window.
  place() {
    const { panel } = this;
    const from = this.button.getBoundingClientRect();
    const left = Math.min(from.left, window.innerWidth - panel.offsetWidth - EDGE_PX);
    const below = from.bottom + 4;
    const above = from.top - panel.offsetHeight - 4;
    const fits = below + panel.offsetHeight <= window.innerHeight - EDGE_PX || above < EDGE_PX;
    panel.style.left = `${Math.max(EDGE_PX, left)}px`;
    panel.style.top = `${fits ? below : above}px`;
  }

  close() {
    if (!this.button) return;
    this.button.setAttribute("aria-expanded", "false");
    this.button.removeAttribute("aria-controls");
    this.button = null;
    this.panel.remove();
  }

  leave(target) {
    if (this.button && !this.panel.contains(target) && !this.button.contains(target)) this.close();
  }

  escape(event) {
    if (event.key !== "Escape" || !this.button) return;
    const { button } = this;
    this.close();
    button.focus();
    event.preventDefault();
    event.stopPropagation();
  }
}

const PASSES_SHOWN = 6;

/**
 * Term -> what it is called, what it is, its formula, which terms explain it further, and its numbers in a run.
 * `numbers({ totals, config, calibration })` gets the figures so far; a term without numbers yet says why.
 */
const TERMS = {
  speedup: {
    title: "Speedup S",
    sentence: "How many times as fast as the target alone, decoding only; the target's clock counts passes without row padding, as a plain decoder runs them.",
    formula: "S = (baseline seconds ÷ baseline tokens) ÷ (speculative seconds ÷ speculative tokens)",
    more: ["theory", "c", "v"],
    numbers: ({ totals, config }) => {
      if (!config.baseline) return "The target alone does not run here, so there is nothing to compare with.";
      if (totals.speedup === null) return "Not told before both lanes have 8 tokens.";
      return `${totals.tokens_per_s.toFixed(1)} ÷ ${totals.baseline_tokens_per_s.toFixed(1)} tok/s = ${totals.speedup.toFixed(2)}×`;
    },
  },
  tau: {
    title: "Tokens per target pass τ",
    sentence: "How many tokens a target pass adds to the text on average, the target's own one included.",
    formula: "τ = tokens ÷ target passes",
    more: ["alpha"],
    numbers: ({ totals }) => `${totals.tokens} ÷ ${totals.passes} = ${totals.tau.toFixed(2)}`,
  },
  alpha: {
    title: "Compared guesses accepted α",
    sentence: "Of the guesses the target compared with its own choice, the share it accepted; those behind a rejected guess are not compared.",
    formula: "α = accepted ÷ compared",
    more: ["tau", "theory"],
    numbers: ({ totals }) => {
      if (totals.alpha_compared === null) return "No guess has been compared.";
      const [accepted, compared] = [totals.accepted_by_position, totals.compared_by_position].map(sum);
      return `${accepted} of ${compared} = ${share(totals.alpha_compared)}`;
    },
  },
  colours: {
    title: "Colours and marks",
    sentence:
      "A green guess was accepted; a struck one was rejected, and those behind it are discarded. ▸ is the target's correction, + its extra token after a whole draft; what had no draft is plain.",
    formula: "tick in the text = discards folded away · moving bar = a target pass · ▮ = one pass",
    more: ["alpha"],
    numbers: ({ totals }) => {
      if (totals.alpha_compared === null) return "No guess has been compared.";
      const [accepted, compared] = [totals.accepted_by_position, totals.compared_by_position].map(sum);
      return `${accepted} accepted, ${compared - accepted} rejected, ${totals.passes} target passes`;
    },
  },
  theory: {
    title: "Theory",
    sentence: "The speedup to expect if every guess were accepted with the same chance α, whatever came before it (Leviathan et al. 2023).",
    formula: "S = (1 − α^(k+1)) ÷ (1 − α) ÷ (k·c + v(k+1))",
    more: ["alpha", "c", "v"],
    numbers: ({ totals, calibration }) => {
      if (totals.s_theory === null) return calibration ? "No guess has been compared." : NOT_MEASURED;
      const even = totals.break_even_alpha;
      const needed = even === null ? "no α would break even" : `1× takes α = ${share(even)}`;
      return `α = ${share(totals.alpha_compared)}, c = ${calibration.c.toFixed(2)}: ${totals.s_theory.toFixed(2)}×; ${needed}`;
    },
  },
  c: {
    title: "Cost of a guess c",
    sentence: "What one draft step costs, measured before the run in target passes over a single token.",
    formula: "c = seconds of a draft step ÷ seconds of a target pass",
    more: ["v", "theory"],
    numbers: ({ calibration }) => (calibration ? `c = ${calibration.c.toFixed(2)}` : NOT_MEASURED),
  },
  v: {
    title: "Cost of checking v(n)",
    sentence: "What a target pass over n tokens costs, measured in passes over one; at 1 checking is free.",
    formula: "v(n) = seconds of a pass over n tokens ÷ seconds of a pass over 1",
    more: ["c", "theory"],
    numbers: ({ calibration }) => {
      if (!calibration) return NOT_MEASURED;
      return calibration.v.slice(0, PASSES_SHOWN).map((cost, index) => `v(${index + 1}) = ${cost.toFixed(2)}`).join(", ");
    },
  },
  rounds: {
    title: "Tokens per round",
    sentence: "A bar is a round: below what was kept of its draft, above what was thrown away; the sign on top is the target's own token.",
    formula: "tokens of a round = accepted + 1",
    more: ["tau", "alpha"],
    numbers: ({ totals }) => {
      const kept = sum(totals.accepted_by_position);
      return `${totals.passes} rounds: ${kept} drafted tokens kept + ${totals.tokens - kept} of the target = ${totals.tokens}`;
    },
  },
  rates: {
    title: "α and τ, round by round",
    sentence: "Both figures over all rounds so far; they settle, since each new round weighs less.",
    formula: "α = accepted ÷ compared, τ = tokens ÷ target passes",
    more: ["alpha", "tau"],
    numbers: ({ totals }) => {
      if (totals.alpha_compared === null) return "No guess has been compared.";
      return `after ${totals.passes} rounds α = ${share(totals.alpha_compared)}, τ = ${totals.tau.toFixed(2)}`;
    },
  },
  race: {
    title: "The race",
    sentence: "Tokens written against seconds of decoding; the steeper line is the faster decoder, and a step up is a round that kept its draft.",
    formula: "slope = tokens per second",
    more: ["speedup"],
    numbers: ({ totals, config }) => {
      const own = `${totals.tokens} tokens in ${totals.seconds.toFixed(2)} s`;
      if (!config.baseline) return own;
      return `${own}; the target alone ${totals.baseline_tokens} in ${totals.baseline_seconds.toFixed(2)} s`;
    },
  },
  time: {
    title: "Where the time goes",
    sentence: "Seconds spent on drafting, on passes of the target, and on the rest: choosing tokens, moving caches.",
    formula: "a round = k draft steps + one target pass + rest",
    more: ["c", "v"],
    numbers: ({ totals }) => {
      const part = (seconds) => share(seconds / totals.seconds);
      return `draft ${part(totals.draft_s)}, target ${part(totals.verify_s)}, rest ${part(totals.other_s)} of ${totals.seconds.toFixed(2)} s`;
    },
  },
  position: {
    title: "Acceptance by place",
    sentence: "How often the first, second, third … guess of a draft was accepted, of those that were compared: a later one stands on more guesses.",
    formula: "α at a place = accepted ÷ compared there",
    more: ["alpha"],
    numbers: ({ totals }) => {
      const { accepted_by_position: accepted, compared_by_position: compared } = totals;
      if (!compared[0]) return "No guess has been compared.";
      return compared.slice(0, PASSES_SHOWN).map((count, place) => `${place + 1}: ${accepted[place]} of ${count}`).join(", ");
    },
  },
};
const NOT_MEASURED = "Not measured for this run.";

/** `{ title, sentence, formula, numbers, more }` of a term; `totals` is null before the first round, `run` before a run. */
export function helpOn(term, totals, run) {
  const { title, sentence, formula, more, numbers } = TERMS[term];
  const known = totals && { totals, config: run.config, calibration: run.calibration };
  return { title, sentence, formula, numbers: known ? numbers(known) : "No figures yet.", more };
}

/** What a term is called where another one refers to it. */
export function termName(term) {
  return TERMS[term].title;
}

function share(value) {
  return `${Math.round(100 * value)}%`;
}

function sum(counts) {
  return counts.reduce((total, count) => total + count, 0);
}
