// One question on the page: its text, the options to choose among, and the dot that leads to it.

import { element } from "./dom.js";
import { judge } from "./quiz_answers.js";
import { HEADS, LETTERS } from "./quiz_words.js";

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
