// The "?" next to a figure or chart: one sentence, the formula, and the numbers of the current run.

import { CHART_TERMS, NOT_MEASURED, NOTHING_COMPARED, sum } from "./charts.js";
import { button, element } from "../common/dom.js";
import { named } from "./tokens.js";
import { settingWords, share, speedWords } from "../common/words.js";

const ID = "sd-help";
const EDGE_PX = 8;
const COSTS_SHOWN = 6;
const RUN = "run"; // the term for the settings of the run itself

/**
 * Maps each term to its title, sentence and formula, to related terms (`more`), and to a function
 * `numbers({ totals, config, calibration })`. The function returns the figures of a run in words, or why there are none.
 */
const TERMS = {
  ...CHART_TERMS,
  speedup: {
    title: "Speedup S",
    sentence: "Decoding speed relative to the target alone, with a 95 % interval or a warning about other work.",
    formula: "S = (baseline seconds ÷ baseline tokens) ÷ (speculative seconds ÷ speculative tokens)",
    more: ["theory", "c", "v"],
    numbers: ({ totals, config }) => {
      if (!config.baseline) return "This run did not include the target alone, so the speedup is unknown.";
      if (totals.speedup === null) return "The speedup needs at least 8 tokens in each lane.";
      const quotient = `${totals.tokens_per_s.toFixed(1)} ÷ ${totals.baseline_tokens_per_s.toFixed(1)} tokens/s = ${speedWords(totals.speedup)}`;
      if (totals.tau === null) return quotient; // a watched server that does not report rounds
      const cost = (totals.tau / totals.speedup).toFixed(2);
      return `${quotient}. A round adds τ = ${totals.tau.toFixed(2)} tokens and takes ${cost}× as long as a token of the target alone`;
    },
  },
  tau: {
    title: "Tokens per target pass τ",
    sentence: "The mean number of tokens that one target pass adds to the text, including the target's own token.",
    formula: "τ = tokens ÷ target passes",
    more: ["alpha"],
    numbers: ({ totals }) => (totals.tau === null ? NOT_MEASURED : `${totals.tokens} ÷ ${totals.passes} = ${totals.tau.toFixed(2)}`),
  },
  alpha: {
    title: "Acceptance rate α",
    sentence: "The share of compared draft tokens that the target accepted; tokens after a rejected token are not compared.",
    formula: "α = accepted ÷ compared",
    more: ["tau", "theory"],
    numbers: ({ totals }) => {
      if (totals.alpha_compared === null) return NOTHING_COMPARED;
      const [accepted, compared] = [totals.accepted_by_position, totals.compared_by_position].map(sum);
      return `${accepted} of ${compared} = ${share(totals.alpha_compared)}`;
    },
  },
  colours: {
    title: "Colors and marks",
    sentence: "Green: accepted; struck through: rejected (pink) or discarded (gray); ▸: corrected; +: bonus; plain: written in a round without draft tokens.",
    formula: "tick in the text = hidden rejected and discarded tokens · lit bar = target pass in progress · ▮ = one pass or one token",
    more: ["alpha"],
    numbers: ({ totals }) => {
      if (totals.alpha_compared === null) return NOTHING_COMPARED;
      const [accepted, compared] = [totals.accepted_by_position, totals.compared_by_position].map(sum);
      return `${accepted} accepted, ${compared - accepted} rejected, ${totals.passes} target passes`;
    },
  },
  c: {
    title: "Cost ratio c",
    sentence: "Time of one draft step relative to a one-token target pass, measured before the run.",
    formula: "c = seconds of a draft step ÷ seconds of a target pass",
    more: ["v", "theory"],
    numbers: ({ calibration }) => (calibration ? `c = ${calibration.c.toFixed(2)}` : NOT_MEASURED),
  },
  v: {
    title: "Verification cost v(n)",
    sentence: "Time of a target pass over n tokens relative to a one-token pass; at 1, extra tokens are free.",
    formula: "v(n) = seconds of a pass over n tokens ÷ seconds of a pass over 1",
    more: ["c", "theory"],
    numbers: ({ calibration }) => {
      if (!calibration) return NOT_MEASURED;
      return calibration.v.slice(0, COSTS_SHOWN).map((cost, index) => `v(${index + 1}) = ${cost.toFixed(2)}`).join(", ");
    },
  },
};

/** `{ title, sentence, formula, numbers, more }` of a term; `totals` is null before the first round. */
export function helpOn(term, totals, run) {
  if (term === RUN) return helpOnRun(run);
  const { numbers, ...words } = TERMS[term];
  const known = totals && { totals, config: run.config, calibration: run.calibration };
  return { ...words, numbers: known ? numbers(known) : "Figures appear after the first round." };
}

function helpOnRun(run) {
  const { config, watched, arithmetic } = run;
  return {
    title: "This run",
    sentence: named(settingWords(run)),
    // Either what a watched server does not report, or the precision of the models.
    formula: named(watched ? watched.silent.join(" ") : (arithmetic ?? "")),
    numbers: `At most ${config.max_new_tokens} new tokens; random seed ${config.seed}`,
    more: [],
  };
}

export class Helps {
  /**
   * Make each button of `root` that has a term in `data-help` open its help. Escape or a press elsewhere closes the
   * help.
   */
  constructor(root) {
    this.button = null;
    this.totals = null;
    this.run = null;
    this.panel = element("div", "sd-help");
    this.panel.id = ID;
    this.panel.setAttribute("role", "note");
    root.addEventListener("click", (event) => this.press(event.target));
    for (const kind of ["pointerdown", "focusin"]) document.addEventListener(kind, (event) => this.leave(event.target));
    // Called before all other listeners, so that one press of Escape closes only the help.
    document.addEventListener("keydown", (event) => this.escape(event), true);
    for (const moved of ["scroll", "resize"]) window.addEventListener(moved, () => this.close());
  }

  /** Set the current figures (null before the first round) and the run that they belong to. */
  show(totals, run) {
    if (totals === this.totals && run === this.run) return;
    this.totals = totals;
    this.run = run;
    if (!run && this.term === RUN) this.close();
    if (this.button) this.fill();
  }

  press(target) {
    const pressed = target.closest?.("[data-help]");
    if (!pressed) return;
    if (pressed === this.button) this.close();
    else this.open(pressed);
  }

  open(pressed) {
    this.close();
    this.button = pressed;
    this.term = pressed.dataset.help;
    pressed.setAttribute("aria-expanded", "true");
    pressed.setAttribute("aria-controls", ID);
    pressed.after(this.panel);
    this.fill();
  }

  /** Show another term in the open help. */
  turnTo(term) {
    this.term = term;
    this.fill();
    this.panel.querySelector("button").focus();
  }

  fill() {
    const { title, sentence, formula, numbers, more } = helpOn(this.term, this.totals, this.run);
    const turns = more.map((term) => {
      const turn = button("sd-opener", TERMS[term].title, () => this.turnTo(term));
      turn.dataset.more = term;
      return turn;
    });
    const focused = [...this.panel.querySelectorAll("button")].indexOf(document.activeElement);
    this.panel.replaceChildren(
      element("b", "", title),
      element("p", "", sentence),
      element("p", "sd-help-formula", formula),
      element("p", "sd-help-numbers", numbers),
      element("p", "sd-help-more", ...turns),
    );
    this.panel.setAttribute("aria-label", title);
    turns[focused]?.focus();
    this.place();
  }

  // Places the help below the button if it fits there, else above; always within the window.
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
    const { button: opener } = this;
    this.close();
    opener.focus();
    event.preventDefault();
    event.stopPropagation();
  }
}
