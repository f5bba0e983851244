// The sections of the lab that need no job: the theory, the best draft lengths of the last run, and what was learned.

import { rolesOf } from "./dom.js";
import { Chart, pageTheme } from "./plotly_chart.js";
import { stageOfPage } from "./stage.js";
import { share, times } from "./words.js";

const PATH = "../specdemo-lab";
export const NO_RUN = "No finished run yet. Press Run in the tab Run, or play a recording there.";
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

  /** Resolves to `{ point, oracle }`, or to null if there is no finished run. Rejects with the server's sentence. */
  async look() {
    const trace = stageOfPage()?.trace;
    if (!trace?.end) return null;
    if (trace !== this.trace) {
      this.trace = trace;
      this.answer = answerFrom(this.url, { method: "POST", body: JSON.stringify(trace.file()) });
    }
    return this.answer;
  }
}

async function answerFrom(url, request) {
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
  constructor(node, base, run) {
    this.roles = rolesOf(node);
    this.base = base;
    this.run = run;
    this.sliders = new Map([...node.querySelectorAll("[data-slider]")].map((slider) => [slider.dataset.slider, slider]));
    this.chart = new Chart(this.roles["theory-chart"], base);
    for (const slider of this.sliders.values()) slider.addEventListener("input", () => this.refresh());
    this.roles["take-run"].addEventListener("click", () => this.take());
    new MutationObserver(() => this.theme !== pageTheme() && this.refresh()).observe(document.body, { attributeFilter: ["class"] });
    whenSeen(node, () => this.look()); // look each time, because the run may be another one
  }

  async look() {
    await this.mark().catch(() => {}); // errors are shown only when the button is pressed
    return this.refresh();
  }

  /** Mark the last run on the surface. Resolves to true if there is one. */
  async mark() {
    this.point = (await this.run.look())?.point ?? null;
    if (this.point) this.tell(runWords(this.point));
    return Boolean(this.point);
  }

  tell(words) {
    this.roles["run-told"].textContent = words;
  }

  /** Set the sliders to the last run. */
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

  /**
   * Show the point of the sliders. There is one request at a time; if the sliders move meanwhile, another one
   * follows.
   */
  async refresh() {
    for (const [name, slider] of this.sliders) {
      const words = SLIDER_WORDS[name](Number(slider.value));
      slider.setAttribute("aria-valuetext", words);
      slider.closest("label").querySelector("output").textContent = words;
    }
    this.due = true;
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.due) {
        this.due = false;
        const theme = pageTheme();
        await this.show(await answerFrom(this.question(theme)), theme);
      }
    } catch (error) {
      this.tell(error.message);
    } finally {
      this.asking = false;
    }
  }

  question(theme) {
    const url = new URL(`${PATH}/theory`, this.base);
    const asked = { theme, ...Object.fromEntries([...this.sliders].map(([name, { value }]) => [name, value])) };
    if (this.point) Object.assign(asked, { run_alpha: this.point.alpha, run_k: this.point.k });
    url.search = new URLSearchParams(asked);
    return url;
  }

  show({ speedup, expected_tokens: tokens, round_cost: cost, best_k: best, best_speedup: most, figure }, theme) {
    const { roles } = this;
    roles["theory-speedup"].textContent = times(speedup);
    roles["theory-speedup"].toggleAttribute("data-slower", speedup < 1);
    roles["theory-tokens"].textContent = tokens.toFixed(2);
    roles["theory-cost"].textContent = cost.toFixed(2);
    roles["theory-best"].textContent = best ? String(best) : "none";
    roles["theory-best-label"].textContent = best ? `best draft length at this α: ${times(most)} speedup` : "no draft length pays at this α";
    this.theme = theme;
    return this.chart.show({ [theme]: figure });
  }
}

/** The sliders' values for the point of a run, each limited to the `[min, max]` of its slider, given in `reach`. */
export function slidersOf({ alpha, k, c, growth }, reach) {
  const values = { alpha, k: Math.round(k), c, growth };
  const within = ([name, value]) => [name, Math.min(Math.max(value, reach[name][0]), reach[name][1])];
  return Object.fromEntries(Object.entries(values).map(within));
}

/** A sentence that compares a run's measured speedup with the theory. */
export function runWords({ alpha, k, c, speedup, s_theory: theory }) {
  const measured = speedup === null ? "" : `${times(speedup)} measured, `;
  const settings = `α ${share(alpha)}, k ${Number(k.toFixed(1))}, c ${Number(c.toFixed(3))}`;
  return `The last run (${settings}): speedup ${measured}${times(theory)} in theory.`;
}

/** The section that shows the last run with the best length of each draft, known in hindsight. */
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
      roles["oracle-told"].textContent = answer?.oracle.sentence ?? NO_RUN;
      if (!answer) return;
      roles["oracle-figures"].hidden = false;
      roles["oracle-cost"].textContent = times(answer.oracle.s_cost);
      roles["oracle-best"].textContent = times(answer.oracle.s_oracle);
      await this.chart.show(answer.oracle.chart);
    } catch (error) {
      roles["oracle-told"].textContent = error.message;
    }
  }
}

/** The section that shows what the pair has learned; hidden if the pair does not learn. */
export class LearnedSection {
  constructor(node, base, learns) {
    node.hidden = !learns;
    if (!learns) return;
    this.roles = rolesOf(node);
    this.url = new URL(`${PATH}/learned`, base);
    this.chart = new Chart(this.roles["learned-chart"], base);
    this.roles["ask-learned"].addEventListener("click", () => this.ask());
    whenSeen(node, () => this.ask());
  }

  async ask() {
    const { roles } = this;
    try {
      const { before, after, sentence, chart } = await answerFrom(this.url);
      roles["learned-told"].textContent = sentence;
      roles["learned-before"].textContent = share(before);
      roles["learned-after"].textContent = share(after);
      roles["learned-chart"].hidden = !chart;
      if (chart) await this.chart.show(chart);
    } catch (error) {
      roles["learned-told"].textContent = error.message;
    }
  }
}
