// The sections of the lab that need no job: the theory, and the best draft lengths of the run on the stage.

import { rolesOf } from "../common/dom.js";
import { Chart } from "../common/plotly_chart.js";
import { sourceWords } from "../stage/recordings.js";
import { stageOfPage } from "../stage/stage.js";
import { bestDraftLength, expectedTokens, roundCost, theoreticalSpeedup } from "./theory.js";
import { fillTheory } from "./theory_chart.js";
import { isSlower, measuredTimes, share, times } from "../common/words.js";

const PATH = "../specdemo-lab";
export const NO_RUN = "No run has finished yet. Start a run or play a recording in the tab Run.";
const SLIDER_WORDS = {
  alpha: share,
  k: String,
  c: (value) => String(Number(value.toFixed(3))),
  growth: (value) => `+${Number((100 * value).toFixed(1))}%`,
};

/** The finished run on the page's stage, with the server's answer about it, which is requested once per run. */
export class RunOnStage {
  constructor(base) {
    this.url = new URL(`${PATH}/run`, base);
    this.trace = null;
  }

  /**
   * Resolves to `{ point, oracle, what_if, source, measured }`, where `source` are the `sourceWords` of the run and `measured` is its
   * speedup in words, or to null without a finished run. Rejects with the server's sentence.
   */
  async look() {
    const stage = stageOfPage();
    const shown = [stage?.own, stage].find((one) => one?.trace.end); // the visitor's run first; a lesson may have the stage
    if (!shown) return null;
    if (shown.trace !== this.trace) {
      this.trace = shown.trace;
      this.answer = this.answerOn(shown);
    }
    return this.answer;
  }

  async answerOn(stage) {
    const { trace, recording } = stage;
    const source = sourceWords(stage);
    const answer = recording
      ? answerFrom(new URL(`${this.url}/${encodeURIComponent(recording)}.json`))
      : answerFrom(this.url, { method: "POST", body: JSON.stringify(trace.file()) });
    return { ...(await answer), source, measured: measuredTimes(trace.end) };
  }
}

/** The server's answer to a request; rejects with its sentence if it refuses. */
export async function answerFrom(url, request) {
  const response = await fetch(url, request);
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server did not answer (status ${response.status}); try again.`);
  return answer;
}

/** Call `act` whenever `node` comes into sight. */
export function whenSeen(node, act) {
  new IntersectionObserver((changes) => changes.some(({ isIntersecting }) => isIntersecting) && act()).observe(node);
}

/** The surface of the theory, with sliders for a point on it. */
export class TheorySection {
  constructor(node, base, run, figures) {
    this.roles = rolesOf(node);
    this.run = run;
    this.figures = figures;
    this.sliders = new Map([...node.querySelectorAll("[data-slider]")].map((slider) => [slider.dataset.slider, slider]));
    this.chart = new Chart(this.roles["theory-chart"], base);
    for (const slider of this.sliders.values()) slider.addEventListener("input", () => this.refresh());
    this.roles["take-run"].addEventListener("click", () => this.take());
    whenSeen(node, () => this.look()); // look each time, because the run may be another one
  }

  async look() {
    await this.mark().catch(() => {}); // errors are shown only when the button is pressed
    return this.refresh();
  }

  /** Mark the run on the surface. Resolves to true if there is one. */
  async mark() {
    const answer = await this.run.look();
    this.point = answer?.point ?? null;
    if (this.point) this.tell(runWords(this.point, answer));
    return Boolean(this.point);
  }

  tell(words) {
    this.roles["run-told"].textContent = words;
  }

  /** Set the sliders to the run. */
  async take() {
    try {
      if (!(await this.mark())) return this.tell(NO_RUN);
    } catch (error) {
      return this.tell(error.message);
    }
    const reach = Object.fromEntries([...this.sliders].map(([name, { min, max }]) => [name, [Number(min), Number(max)]]));
    for (const [name, value] of Object.entries(slidersOf(this.point, reach))) this.sliders.get(name).value = value;
    return this.refresh();
  }

  /** Show the point of the sliders. */
  refresh() {
    for (const [name, slider] of this.sliders) {
      const words = SLIDER_WORDS[name](Number(slider.value));
      slider.setAttribute("aria-valuetext", words);
      slider.closest("label").querySelector("output").textContent = words;
    }
    const { roles } = this;
    const point = Object.fromEntries([...this.sliders].map(([name, { value }]) => [name, Number(value)]));
    const speedup = theoreticalSpeedup(point);
    const maxK = Number(this.sliders.get("k").max);
    const best = bestDraftLength(point, maxK);
    roles["theory-speedup"].textContent = times(speedup);
    roles["theory-speedup"].toggleAttribute("data-slower", isSlower(speedup));
    roles["theory-tokens"].textContent = expectedTokens(point).toFixed(2);
    roles["theory-cost"].textContent = roundCost(point).toFixed(2);
    roles["theory-best"].textContent = best.k ? String(best.k) : "none";
    roles["theory-best-label"].textContent = best.k ? `best draft length at this α: ${times(best.speedup)} speedup` : "no draft length pays at this α";
    return this.chart.show(this.figures, (figure) => fillTheory(figure, point, this.point ?? null, maxK));
  }
}

/** The sliders' values for the point of a run, each limited to the `[min, max]` of its slider, given in `reach`. */
export function slidersOf({ alpha, k, c, growth }, reach) {
  const values = { alpha, k: Math.round(k), c, growth };
  const within = ([name, value]) => [name, Math.min(Math.max(value, reach[name][0]), reach[name][1])];
  return Object.fromEntries(Object.entries(values).map(within));
}

/** A sentence that compares a run's measured speedup with the theory. */
export function runWords({ alpha, k, c, speedup, s_theory: theory }, { source, measured }) {
  const raced = speedup === null ? "" : `measured speedup ${measured}, `;
  const settings = `α ${share(alpha)}, k ${Number(k.toFixed(1))}, c ${Number(c.toFixed(3))}`;
  return `The star marks ${source}: ${settings}, ${raced}theoretical speedup ${times(theory)}.`;
}

/** The section that shows the run with better drafts: of the best lengths, known in hindsight, and with perfect ones. */
export class OracleSection {
  constructor(node, base, run) {
    this.roles = rolesOf(node);
    this.run = run;
    this.chart = new Chart(this.roles["oracle-chart"], base);
    this.roles["ask-oracle"].addEventListener("click", () => this.ask());
  }

  async ask() {
    const { roles } = this;
    try {
      const answer = await this.run.look();
      roles["oracle-told"].textContent = answer ? `Computed from ${answer.source}. ${answer.oracle.sentence}` : NO_RUN;
      if (!answer) return;
      roles["oracle-figures"].hidden = false;
      roles["oracle-cost"].textContent = times(answer.oracle.s_cost);
      roles["oracle-best"].textContent = times(answer.oracle.s_oracle);
      roles["oracle-perfect"].textContent = times(answer.oracle.s_perfect);
      roles["oracle-perfect-label"].textContent = `estimated speedup with perfect drafts, k = ${answer.oracle.k}`;
      await this.chart.show(answer.oracle.chart);
    } catch (error) {
      roles["oracle-told"].textContent = error.message;
    }
  }
}
