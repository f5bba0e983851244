// A question of the quiz and its result on the page.

import { element, progressBar } from "./dom.js";
import { judge } from "./quiz.js";

export class QuestionCard {
  /** `picked` is the option (from 0) of an earlier prediction, or null. */
  constructor({ text, setup, options }, number, picked, { onOpen, onPick }) {
    this.number = number;
    this.picked = picked;
    this.title = element("h3", "", `${number}. ${text}`);
    this.title.tabIndex = -1;
    this.choice = element("fieldset", "", element("legend", "", "What do you predict?"));
    this.choice.append(...options.map((option, place) => this.option(option, place, onPick)));
    this.node = element("article", "", this.title, element("p", "sd-quiz-setup", setup), this.choice);
    this.node.dataset.question = number;
    this.dot = element("button", "sd-dot", String(number));
    this.dot.type = "button";
    this.dot.title = text;
    this.dot.addEventListener("click", onOpen);
  }

  option(text, place, onPick) {
    const input = element("input", "");
    input.type = "radio";
    input.name = `sd-quiz-${this.number}`;
    input.value = place;
    input.checked = this.picked === place;
    input.addEventListener("change", () => {
      this.picked = place;
      onPick();
    });
    return element("label", "", input, element("b", "", LETTERS[place]), element("span", "", text));
  }

  setCurrent(current) {
    this.node.toggleAttribute("data-current", current);
    if (current) this.dot.setAttribute("aria-current", "step");
    else this.dot.removeAttribute("aria-current");
  }

  /** Mark what was measured and what became of the prediction; nothing where there is no answer. */
  show(answer) {
    const labels = this.choice.querySelectorAll("label");
    labels.forEach((label, place) => label.toggleAttribute("data-measured", answer?.verdict.option === place));
    const outcome = answer && judge(answer);
    if (outcome) this.dot.dataset.outcome = outcome;
    else delete this.dot.dataset.outcome;
    this.dot.setAttribute("aria-label", `Question ${this.number}${outcome ? `: ${HEADS[outcome]}` : ""}`);
  }

  /** Whether the prediction stands. */
  lock(locked) {
    this.choice.disabled = locked;
  }

  forget() {
    this.picked = null;
    for (const input of this.choice.querySelectorAll("input")) input.checked = false;
  }

  focusOptions() {
    this.choice.querySelector("input").focus();
  }

  focusTitle() {
    this.title.focus();
  }
}

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

export const LETTERS = "ABCDEF";
/** What became of a prediction, by what `judge` says. */
export const HEADS = { right: "As you predicted.", wrong: "Not as you predicted.", close: "No verdict." };

/** `{ kind, head, words }`: what became of a prediction among `options`, and what was measured instead. */
export function verdictWords(answer, options) {
  const kind = judge(answer);
  const { option } = answer.verdict;
  const measured = kind === "close" ? "" : `Measured: ${LETTERS[option]}, “${options[option]}”.`;
  const words = kind === "wrong" ? `${measured} You said ${LETTERS[answer.picked]}.` : measured;
  return { kind, head: HEADS[kind], words };
}

/** The score in words; `answers` are those there are, of `count` questions. */
export function scoreWords(answers, count) {
  const outcomes = answers.map(judge);
  const right = outcomes.filter((outcome) => outcome === "right").length;
  const close = outcomes.filter((outcome) => outcome === "close").length;
  if (!outcomes.length) return "Nothing answered yet";
  const done = outcomes.length === count ? "All done: " : "";
  return `${done}${right} of ${outcomes.length - close} predicted${close ? `, ${close} too close to call` : ""}`;
}
