// Theory: the surface that sliders move about in, and what an all-knowing drafter would have made of the last run.

import { rolesOf } from "./dom.js";
import { Chart } from "./single_chart.js";
import { answerOf, NO_RUN } from "./lab_run.js";
import { runWords, shownAs, sliderWords, slidersOf } from "./lab_words.js";
import { pageTheme } from "./plotly_setup.js";

const PATH = "../specdemo-lab/theory";

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
    const url = new URL(PATH, this.base);
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
