// The views of a question of the quiz and of its result, and the words for both.

import { button, element, progressBar } from "../common/dom.js";

export const LETTERS = "ABCDEF";
const HEADS = { right: "Your prediction was right.", wrong: "Your prediction was wrong.", close: "No verdict." };
const SIGNS = { right: "✓", wrong: "✗", close: "≈" };

/** The measured option, else the one of the recorded answer; null without both. */
function optionOf({ verdict, recorded }) {
  return verdict.option ?? recorded?.option ?? null;
}

/** The explanation of a result. That of a recorded answer says so. */
export function whyWords({ verdict, recorded }) {
  return recorded ? `${verdict.why} Recorded on ${recorded.place}: ${recorded.why}` : verdict.why;
}

/** The outcome of a prediction: "right", "wrong", or "close" if the measurement gave no answer, which is not counted. */
export function judge({ picked, verdict: { option } }) {
  if (option === null) return "close";
  return option === picked ? "right" : "wrong";
}

/** The outcome of a prediction (`kind`), a heading (`head`) and `words` about the measured or recorded answer. */
export function verdictWords(answer, options) {
  const kind = judge(answer);
  const option = optionOf(answer);
  const source = answer.recorded ? "Recorded answer" : "Measured";
  const measured = option === null ? "" : `${source}: ${LETTERS[option]}, “${options[option]}”.`;
  const words = kind === "wrong" ? `${measured} You chose ${LETTERS[answer.picked]}.` : measured;
  return { kind, head: HEADS[kind], words };
}

/** The score so far, in words, in a quiz of `count` questions. */
export function scoreWords(answers, count) {
  const outcomes = answers.map(judge);
  if (!outcomes.length) return "No answers yet";
  const right = outcomes.filter((outcome) => outcome === "right").length;
  const close = outcomes.filter((outcome) => outcome === "close").length;
  const done = outcomes.length === count ? "All done: " : "";
  return `${done}${right} of ${outcomes.length - close} predicted correctly${close ? `, ${close} without a verdict` : ""}`;
}

export class QuestionCard {
  /** `picked` is the index of the option that was predicted earlier, or null. */
  constructor({ text, setup, options }, number, picked, { onOpen, onPick }) {
    this.number = number;
    this.picked = picked;
    this.title = element("h3", "", `${number}. ${text}`);
    this.title.tabIndex = -1;
    this.choice = element("fieldset", "", element("legend", "", "What do you predict?"));
    this.choice.append(...options.map((option, place) => this.option(option, place, onPick)));
    this.node = element("article", "", this.title, element("p", "sd-quiz-setup", setup), this.choice);
    this.node.dataset.question = number;
    this.dot = button("sd-dot", String(number), onOpen);
    this.dot.title = text;
  }

  option(text, place, onPick) {
    const input = element("input", "");
    Object.assign(input, { type: "radio", name: `sd-quiz-${this.number}`, value: place, checked: this.picked === place });
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

  /** Mark the measured or recorded option and the outcome of the prediction, if there is an answer. */
  show(answer) {
    const marked = answer ? optionOf(answer) : null;
    this.choice.querySelectorAll("label").forEach((label, place) => {
      if (place === marked) label.dataset.measured = answer.recorded ? "recorded" : "measured";
      else delete label.dataset.measured;
    });
    const outcome = answer && judge(answer);
    if (outcome) this.dot.dataset.outcome = outcome;
    else delete this.dot.dataset.outcome;
    this.dot.setAttribute("aria-label", `Question ${this.number}${outcome ? `: ${HEADS[outcome]}` : ""}`);
  }

  /** Lock or unlock the prediction; a locked one cannot be changed. */
  lock(locked) {
    this.choice.disabled = locked;
  }

  forget() {
    this.picked = null;
    for (const input of this.choice.querySelectorAll("input")) input.checked = false;
  }
}

export class ResultCard {
  /** `onNext` opens the next question; it is null for the last question. */
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

  /** Show a run that has no verdict yet; the argument is a result of `resultOf`. */
  showProgress({ progress, error, sides }) {
    if (error) return this.node.replaceChildren(element("p", "sd-quiz-error", error));
    this.node.replaceChildren(progressLine(progress), ...(sides.length ? [tableOf(sides)] : []));
  }

  showStopped() {
    this.node.replaceChildren(element("p", "sd-quiz-note", "Stopped before both runs were measured. Press “Run it” for a verdict."));
  }

  show(answer) {
    this.node.replaceChildren(...(answer ? this.finished(answer) : []));
  }

  finished(answer) {
    const { sides, place } = answer;
    const { kind, head, words } = verdictWords(answer, this.options);
    const said = element("p", "sd-quiz-verdict", element("b", "", `${SIGNS[kind]} ${head}`), ` ${words}`);
    said.dataset.kind = kind;
    const foot = element("footer", "", element("span", "", `Measured on ${place}.`));
    if (this.onNext) foot.append(button("sd-button", "Next question ›", this.onNext));
    const heading = element("h4", "", `Question ${this.number}`);
    return [heading, tableOf(sides), said, element("p", "sd-quiz-why", whyWords(answer)), foot];
  }
}

/** The progress of a job: its words and a bar. */
export function progressLine({ text, fraction }) {
  const bar = progressBar("Progress");
  bar.value = fraction;
  return element("p", "sd-quiz-progress", element("span", "", text), bar);
}

/**
 * A table of the figures of the measured sides. The length of a bar is proportional to its figure; 100%, or else the larger
 * figure of the row, has the full length.
 */
export function tableOf(sides) {
  const head = element("tr", "", element("td", ""), ...sides.map(({ label }) => headCell("col", label)));
  const rows = sides[0].figures.map(({ label }, row) => {
    const figures = sides.map((side) => side.figures[row]);
    const isShare = figures.some((figure) => figure.text.endsWith("%"));
    const most = isShare ? 1 : Math.max(...figures.map((figure) => figure.value ?? 0));
    return element("tr", "", headCell("row", label), ...figures.map((figure) => cell(figure, most)));
  });
  return element("table", "", element("thead", "", head), element("tbody", "", ...rows));
}

function headCell(scope, label) {
  const head = element("th", "", label);
  head.scope = scope;
  return head;
}

function cell(figure, most) {
  const bar = element("i", "");
  bar.style.setProperty("--share", most > 0 ? (figure.value ?? 0) / most : 0);
  return element("td", "", element("b", "", figure.text), bar);
}
