// What was measured for one question: how far it is, both sides' figures, and the verdict.

import { element } from "./dom.js";
import { progressBar } from "./progress_bar.js";
import { verdictWords } from "./quiz_words.js";

const SIGNS = { right: "✓", wrong: "✗", close: "≈" };

export class ResultCard {
  /** `onNext` leads to the next question; null where there is none. */
  constructor({ options }, number, onNext) {
    this.options = options;
    this.number = number;
    this.onNext = onNext;
    this.node = element("article", "");
    this.node.dataset.result = number;
  }

  setCurrent(current) {
    this.node.toggleAttribute("data-current", current);
  }

  /** A run that has not come to its verdict (see `resultOf`). */
  showProgress({ progress, error, sides }) {
    if (error) return this.node.replaceChildren(element("p", "sd-quiz-error", error));
    const bar = progressBar("Measured so far");
    bar.value = progress.fraction;
    const notice = element("p", "sd-quiz-progress", element("span", "", progress.text), bar);
    this.node.replaceChildren(notice, ...(sides.length ? [tableOf(sides)] : []));
  }

  showStopped() {
    this.node.replaceChildren(element("p", "sd-quiz-note", "Stopped before both runs were measured: no verdict."));
  }

  /** The answer there is, or nothing. */
  show(answer) {
    this.node.replaceChildren(...(answer ? this.finished(answer) : []));
  }

  finished(answer) {
    const { sides, verdict, place } = answer;
    const { kind, head, words } = verdictWords(answer, this.options);
    const said = element("p", "sd-quiz-verdict", element("b", "", `${SIGNS[kind]} ${head}`), ` ${words}`);
    said.dataset.kind = kind;
    const foot = element("footer", "", element("span", "", `Measured on ${place}.`));
    if (this.onNext) foot.append(this.nextButton());
    const heading = element("h4", "", `Question ${this.number}`);
    return [heading, tableOf(sides), said, element("p", "sd-quiz-why", verdict.why), foot];
  }

  nextButton() {
    const button = element("button", "sd-button", "Next question ›");
    button.type = "button";
    button.addEventListener("click", this.onNext);
    return button;
  }
}

/** Both sides' figures beside each other; bars are as long as the larger of the two allows. */
function tableOf(sides) {
  const head = element("tr", "", element("td", ""), ...sides.map(({ label }) => columnHead(label)));
  const rows = sides[0].figures.map(({ label }, row) => {
    const figures = sides.map((side) => side.figures[row]);
    const most = Math.max(...figures.map((figure) => figure?.value ?? 0));
    const title = element("th", "", label);
    title.scope = "row";
    return element("tr", "", title, ...figures.map((figure) => cell(figure, most)));
  });
  return element("table", "", element("thead", "", head), element("tbody", "", ...rows));
}

function columnHead(label) {
  const head = element("th", "", label);
  head.scope = "col";
  return head;
}

function cell(figure, most) {
  const bar = element("i", "");
  bar.style.width = `${most > 0 ? (100 * (figure.value ?? 0)) / most : 0}%`;
  return element("td", "", element("b", "", figure.text), bar);
}
