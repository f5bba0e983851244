// The lab's answers without a job: the theory, the best draft lengths of the last run, and what the page has learned.

import { rolesOf } from "./dom.js";
import { Chart, pageTheme } from "./plotly_chart.js";
import { stageOfPage } from "./stage.js";

const THEORY_PATH = "../specdemo-lab/theory";

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
    // The tab is hidden at first, and there may be another run whenever it is opened again.
    new IntersectionObserver((changes) => changes.some(({ isIntersecting }) => isIntersecting) && this.look()).observe(node);
  }

  async look() {
    await this.mark().catch(() => {}); // whoever asks for the run is told why there is none
    return this.refresh();
  }

  /** Mark the last run; whether there is one. */
  async mark() {
    this.point = (await this.run.look())?.point ?? null;
    if (this.point) this.roles["run-told"].textContent = runWords(this.point);
    return Boolean(this.point);
  }

  /** Set the sliders to the last run. */
  async take() {
    try {
      if (!(await this.mark())) return (this.roles["run-told"].textContent = NO_RUN);
    } catch (error) {
      return (this.roles["run-told"].textContent = error.message);
    }
    const reach = Object.fromEntries([...this.sliders].map(([name, { min, max }]) => [name, [Number(min), Number(max)]]));
    for (const [name, value] of Object.entries(slidersOf(this.point, reach))) this.sliders.get(name).value = value;
    return this.refresh();
  }

  /** Ask for the point that the sliders say, one question at a time; the latest is always answered. */
  async refresh() {
    for (const [name, slider] of this.sliders) {
      const words = sliderWords[name](Number(slider.value));
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
        await this.show(await answerOf(await fetch(this.question(theme))), theme);
      }
    } catch (error) {
      this.roles["run-told"].textContent = error.message;
    } finally {
      this.asking = false;
    }
  }

  question(theme) {
    const url = new URL(THEORY_PATH, this.base);
    const asked = { theme, ...Object.fromEntries([...this.sliders].map(([name, { value }]) => [name, value])) };
    if (this.point) Object.assign(asked, { run_alpha: this.point.alpha, run_k: this.point.k });
    url.search = new URLSearchParams(asked);
    return url;
  }

  show({ speedup, expected_tokens: tokens, round_cost: cost, best_k: best, best_speedup: most, figure }, theme) {
    const { roles } = this;
    roles["theory-speedup"].textContent = shownAs.times(speedup);
    roles["theory-speedup"].toggleAttribute("data-slower", speedup < 1);
    roles["theory-tokens"].textContent = shownAs.two(tokens);
    roles["theory-cost"].textContent = shownAs.two(cost);
    roles["theory-best"].textContent = best ? String(best) : "none";
    roles["theory-best-label"].textContent = best ? `best draft length at this α: ${shownAs.times(most)}` : "no draft pays at this α";
    this.theme = theme;
    return this.chart.show({ [theme]: figure });
  }
}

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
      if (!answer) return (roles["oracle-told"].textContent = NO_RUN);
      const { s_cost: cost, s_oracle: best, sentence, chart } = answer.oracle;
      roles["oracle-told"].textContent = sentence;
      roles["oracle-figures"].hidden = false;
      roles["oracle-cost"].textContent = shownAs.times(cost);
      roles["oracle-best"].textContent = shownAs.times(best);
      return this.chart.show(chart);
    } catch (error) {
      return (roles["oracle-told"].textContent = error.message);
    }
  }
}

const RUN_PATH = "../specdemo-lab/run";
export const NO_RUN = "There is no finished run on the page yet: make one under Run, or play a recorded one there.";

export class RunOnStage {
  constructor(base) {
    this.url = new URL(RUN_PATH, base);
    this.trace = null;
  }

  /** `{ point, oracle }` of the finished run on the stage; null where there is none. Throws the server's sentence. */
  async look() {
    const trace = stageOfPage()?.trace;
    if (!trace?.end) return null;
    if (trace !== this.trace) {
      this.trace = trace;
      this.answer = askAboutRun(this.url, trace.file());
    }
    return this.answer;
  }
}

async function askAboutRun(url, file) {
  return answerOf(await fetch(url, { method: "POST", body: JSON.stringify(file) }));
}

/** The JSON of a response, or its sentence thrown. */
export async function answerOf(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server could not be asked (status ${response.status}).`);
  return answer;
}

const LEARNED_PATH = "../specdemo-lab/learned";

export class LearnedSection {
  /** Stays hidden where the page does not learn. */
  constructor(node, base, learns) {
    node.hidden = !learns;
    if (!learns) return;
    this.roles = rolesOf(node);
    this.url = new URL(LEARNED_PATH, base);
    this.chart = new Chart(this.roles["learned-chart"], base);
    this.roles["ask-learned"].addEventListener("click", () => this.ask());
    new IntersectionObserver((changes) => changes.some(({ isIntersecting }) => isIntersecting) && this.ask()).observe(node);
  }

  async ask() {
    const { roles } = this;
    try {
      const { before, after, sentence, chart } = await answerOf(await fetch(this.url));
      roles["learned-told"].textContent = sentence;
      roles["learned-before"].textContent = shownAs.share(before);
      roles["learned-after"].textContent = shownAs.share(after);
      roles["learned-chart"].hidden = !chart;
      return chart && this.chart.show(chart);
    } catch (error) {
      return (roles["learned-told"].textContent = error.message);
    }
  }
}

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
