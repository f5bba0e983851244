// What a page that learns while it serves has learned: asked for whenever the section comes into sight.

import { answerOf } from "./lab_run.js";
import { shownAs } from "./lab_words.js";
import { rolesOf } from "./dom.js";
import { Chart } from "./single_chart.js";

const PATH = "../specdemo-lab/learned";

export class LearnedSection {
  /** Stays hidden where the page does not learn. */
  constructor(node, base, learns) {
    node.hidden = !learns;
    if (!learns) return;
    this.roles = rolesOf(node);
    this.url = new URL(PATH, base);
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
