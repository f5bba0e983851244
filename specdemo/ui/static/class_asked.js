// The question a class is asked, on a student's page: an answer that can be changed until the close, then what came out.

import { element, replaceParts, write } from "./dom.js";
import { answerBars } from "./class_bars.js";
import { answerWords, measuredWords, numberIn } from "./class_words.js";
import { LETTERS } from "./quiz_words.js";

const ROUNDING = 1e-9;

export class Asked {
  /** `send({ question, answer })` resolves once the answer has been taken. */
  constructor(root, send) {
    this.root = root;
    this.send = send;
    this.question = null;
    this.picked = null;
    this.given = null;
  }

  /** `question` as the server tells it; null: none is asked. */
  show(question) {
    const { number, phase } = this.question ?? {};
    this.question = question;
    this.root.hidden = !question;
    if (!question) return;
    if (question.number !== number) this.picked = this.given?.question === question.number ? this.given.answer : null;
    if (question.number !== number || question.phase !== phase) this.lay(); // else what is being typed stays
    write(this.told, this.stateWords());
    this.counts.replaceChildren(...(question.bars ? [answerBars(question)] : []));
    this.root.dataset.outcome = this.outcome ?? "";
    for (const [index, option] of this.options.entries()) option.setAttribute("aria-pressed", String(this.picked === index));
  }

  /** What was answered before the page was loaded anew: `{ question, answer }`, the question by its number. */
  recall(given) {
    this.given = given;
  }

  lay() {
    const { text, phase, why } = this.question;
    this.options = [];
    this.told = element("p", "sd-asked-told");
    this.told.setAttribute("role", "status");
    this.counts = element("div", "");
    const answer = phase === "open" ? this.form() : this.chosen();
    replaceParts(this.root, element("h2", "", text), answer, this.counts, this.told, ...(why ? [element("p", "", why)] : []));
  }

  get outcome() {
    const { phase, right, near } = this.question;
    if (phase !== "told" || right === null || this.picked === null) return null;
    return Math.abs(this.picked - right) <= near * Math.abs(right) + ROUNDING ? "right" : "wrong";
  }

  form() {
    const form = element("form", "sd-asked-form");
    if (this.question.kind === "choice") form.append(...this.question.options.map((text, index) => this.option(text, index)));
    else form.append(...this.numberField());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const typed = numberIn(form.querySelector("input").value);
      if (typed === null) this.tell("Type a number, such as 1.5.");
      else this.answer(typed);
    });
    return form;
  }

  option(text, index) {
    const button = element("button", "sd-asked-option", element("b", "", LETTERS[index]), element("span", "", text));
    button.type = "button";
    button.addEventListener("click", () => this.answer(index));
    this.options.push(button);
    return button;
  }

  numberField() {
    const input = element("input", "");
    input.inputMode = "decimal";
    input.setAttribute("aria-label", "Your number");
    const send = element("button", "sd-button", "Answer");
    send.type = "submit";
    return [input, send];
  }

  chosen() {
    return element("p", "sd-asked-chosen", this.picked === null ? "" : `Your answer: ${answerWords(this.question, this.picked)}.`);
  }

  async answer(answer) {
    const { number } = this.question;
    try {
      await this.send({ question: number, answer });
      if (this.question?.number !== number) return; // the next is asked already
      this.picked = answer;
      this.show(this.question);
    } catch (error) {
      this.tell(error.message);
    }
  }

  tell(words) {
    this.told.textContent = words;
  }

  stateWords() {
    const { phase, answered } = this.question;
    if (phase === "open") return this.picked === null ? "" : `Your answer: ${answerWords(this.question, this.picked)}. You can change it until the answers are closed.`;
    if (phase === "closed") return `The answers are closed (${answered}). Now it is measured.`;
    const own = { right: "✓ You were right. ", wrong: "✗ Not as you said. " }[this.outcome] ?? "";
    return own + measuredWords(this.question);
  }
}
