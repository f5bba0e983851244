// The section of the lab that applies other conditions to the run on the stage. The server replays the rounds with other draft
// lengths (records/what_if.py); this module applies the conditions to their times.

import { rolesOf } from "../common/dom.js";
import { NO_RUN, whenSeen } from "./lab_theory.js";
import { Chart } from "../common/plotly_chart.js";
import { counted, isSlower, times } from "../common/words.js";

const AS_DRAFTED = 0; // the draft length that stands for the lengths of the run
const CHOSEN = "chosen"; // the trace with the point of the sliders; the other traces are named by the draft time
const STEPS = 40; // of the bisection; the interval shrinks to less than a microsecond
/**
 * The seconds of draft and verification in a round, by the choice of the draft time. A hidden draft is the best case of
 * speculative speculative decoding (arXiv 2603.03251).
 */
const ROUND_COSTS = {
  measured: (draft, verify) => draft + verify,
  hidden: Math.max,
  free: (_, verify) => verify,
};
const CHOICE_WORDS = {
  measured: "Drafting and verification take turns, as in the run.",
  hidden: "In the best case, drafting runs during verification, and a round takes as long as the slower of drafting and verification.",
  free: "Drafting takes no time.",
};

/**
 * The speedup of `rounds`, a list of `[count, draft_s, verify_s, rest_s]`, compared with the target alone, which takes
 * `aloneS` seconds for the same text. Each round waits for one round trip of `delayS` seconds.
 */
export function speedupOf(rounds, draft, delayS, aloneS) {
  const cost = ROUND_COSTS[draft];
  const seconds = rounds.map(([count, draftS, verifyS, restS]) => count * (cost(draftS, verifyS + delayS) + restS));
  return aloneS / seconds.reduce((sum, part) => sum + part, 0);
}

/** The round trip in seconds at which the speedup is 1; null if the run is slower without any. */
export function breakEvenDelay(rounds, draft, aloneS) {
  if (isSlower(speedupOf(rounds, draft, 0, aloneS))) return null;
  let [low, high] = [0, aloneS]; // no run with such a round trip is faster than the target alone
  for (let step = 0; step < STEPS; step += 1) {
    const middle = (low + high) / 2;
    if (speedupOf(rounds, draft, middle, aloneS) < 1) high = middle;
    else low = middle;
  }
  return low;
}

/** The draft length with the highest speedup, as `{ k, speedup }`; the lengths of the run do not count. */
export function bestLength(lengths, draft, delayS, aloneS) {
  const found = lengths.filter(({ k }) => k !== AS_DRAFTED).map(({ k, expected }) => ({ k, speedup: speedupOf(expected, draft, delayS, aloneS) }));
  return found.reduce((best, other) => (other.speedup > best.speedup ? other : best));
}

/** A sentence about what the run shows of a draft length, whose speedup is between `low` and `high`. */
export function certaintyWords(k, low, high, unknown) {
  if (k === AS_DRAFTED) return "All rounds use the draft lengths of the run.";
  if (times(low) === times(high)) return `k = ${k}: tokens that were never drafted do not change this estimate.`;
  const tokens = counted(unknown, "token was", "tokens were");
  return `k = ${k}: between ${times(low)} and ${times(high)}, because ${tokens} never drafted. The estimate uses the run’s α.`;
}

export class WhatIfSection {
  constructor(node, base, run, figures) {
    this.node = node;
    this.roles = rolesOf(node);
    this.run = run;
    this.figures = figures;
    this.chart = new Chart(this.roles["what-if-chart"], base);
    const slider = (name) => node.querySelector(`[data-slider=${name}]`);
    this.delay = slider("delay");
    this.length = slider("length");
    node.addEventListener("input", () => this.refresh());
    whenSeen(node, () => this.look());
    document.addEventListener("sd-moment", () => node.checkVisibility() && this.look());
  }

  /** Take the run of the page, unless it is shown already. */
  async look() {
    try {
      const answer = await this.run.look();
      if (!answer) return this.refuse(NO_RUN);
      if (answer === this.answer) return;
      this.answer = answer;
      this.length.max = answer.what_if.lengths.at(-1).k;
      this.roles["what-if-controls"].disabled = false;
      await this.refresh();
    } catch (error) {
      this.refuse(error.message);
    }
  }

  refuse(words) {
    this.answer = null;
    this.roles["what-if-controls"].disabled = true;
    this.roles["what-if-words"].textContent = words;
    for (const figure of ["speedup", "even", "best"]) this.roles[`what-if-${figure}`].textContent = "–";
  }

  refresh() {
    const { roles, answer, delay, length } = this;
    const { lengths, alone_s: aloneS, unknown } = answer.what_if;
    const draft = this.node.querySelector("[name=what-if-draft]:checked").value;
    const [delayMs, k] = [Number(delay.value), Number(length.value)];
    const speedup = (rounds, how = draft) => speedupOf(rounds, how, delayMs / 1000, aloneS);
    const { expected, fewest, most } = lengths.find((other) => other.k === k);
    const speedups = [fewest, expected, most].map((rounds) => speedup(rounds));
    const [low, high] = [Math.min(...speedups), Math.max(...speedups)];
    const even = breakEvenDelay(expected, draft, aloneS);
    const best = bestLength(lengths, draft, delayMs / 1000, aloneS);
    showSlider(delay, `${delayMs} ms`);
    showSlider(length, k === AS_DRAFTED ? "as in the run" : String(k));
    roles["what-if-speedup"].textContent = times(speedups[1]);
    roles["what-if-speedup"].toggleAttribute("data-slower", isSlower(speedups[1]));
    roles["what-if-even"].textContent = even === null ? "none: slower even at 0 ms" : `${(1000 * even).toFixed(1)} ms`;
    roles["what-if-best"].textContent = `${best.k} (${times(best.speedup)})`;
    const trip = delayMs ? ["Without drafts, the target needs no round trips."] : [];
    const drawn = lengths.filter((other) => other.k !== AS_DRAFTED);
    const isHiddenFree = drawn.every((other) => speedup(other.expected, "hidden") === speedup(other.expected, "free"));
    const same = isHiddenFree ? [`In each round, drafting takes no longer than verification${delayMs ? " and the round trip" : ""}, so the curves “hidden” and “free” coincide.`] : [];
    roles["what-if-words"].textContent = [`Estimated from ${answer.source}.`, CHOICE_WORDS[draft], ...trip, ...same, certaintyWords(k, low, high, unknown)].join(" ");
    return this.chart.show(this.figures, ({ data }) => {
      for (const trace of data) {
        const points = trace.uid === CHOSEN ? [] : drawn;
        trace.x = points.map((other) => other.k);
        trace.y = points.map((other) => speedup(other.expected, trace.uid));
      }
      const chosen = data.find(({ uid }) => uid === CHOSEN);
      Object.assign(chosen, { x: [k || answer.point.k], y: [speedups[1]] });
      Object.assign(chosen.error_y, { array: [high - speedups[1]], arrayminus: [speedups[1] - low] });
    });
  }
}

function showSlider(slider, words) {
  slider.setAttribute("aria-valuetext", words);
  slider.closest("label").querySelector("output").textContent = words;
}
