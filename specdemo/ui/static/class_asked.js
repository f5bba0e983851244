// The current question on a student's page: an answer that can be changed until voting closes, then the result.

import { answerBars, answerWords, numberIn, resultWords } from "./class_results.js";
import { button, element, onSubmit, replaceParts, write } from "./dom.js";
import { LETTERS } from "./quiz_words.js";

const ROUNDING = 1e-9;

export class Asked {
  /** `send({ question, answer })` resolves once the server has the answer. */
  constructor(root, send) {
    this.root = root;
    this.send = send;
    this.question = null;
    this.picked = null;
    this.given = null; // `{ question, answer }` from before a reload
  }

  /** Show `question` as the server sends it; null: there is none. */
  show(question) {
    const { number, phase } = this.question ?? {};
    this.question = question;
    this.root.hidden = !question;
    if (!question) return;
    if (question.number !== number) this.picked = this.given?.question === question.number ? this.given.answer : null;
    if (question.number !== number || question.phase !== phase) this.rebuild(); // otherwise typed text stays
    write(this.status, this.statusWords());
    this.counts.replaceChildren(...(question.bars ? [answerBars(question)] : []));
    this.root.dataset.outcome = this.outcome ?? "";
    for (const [index, option] of this.options.entries()) option.setAttribute("aria-pressed", String(this.picked === index));
  }

  rebuild() {
    const { text, phase, why } = this.question;
    this.options = [];
    this.status = element("p", "sd-asked-told");
    this.status.setAttribute("role", "status");
    this.counts = element("div", "");
    const answer = phase === "open" ? this.form() : element("p", "sd-asked-chosen", this.answerSentence());
    replaceParts(this.root, element("h2", "", text), answer, this.counts, this.status, ...(why ? [element("p", "", why)] : []));
  }

  get outcome() {
    const { phase, right, tolerance } = this.question;
    if (phase !== "revealed" || right === null || this.picked === null) return null;
    return Math.abs(this.picked - right) <= tolerance * Math.abs(right) + ROUNDING ? "right" : "wrong";
  }

  form() {
    const form = element("form", "sd-asked-form");
    if (this.question.kind === "choice") {
      this.options = this.question.options.map((text, index) => {
        const option = button("sd-asked-option", "", () => this.answer(index));
        option.append(element("b", "", LETTERS[index]), element("span", "", text));
        return option;
      });
      form.append(...this.options);
    } else {
      const input = element("input", "");
      input.inputMode = "decimal";
      input.setAttribute("aria-label", "Your number");
      form.append(input, element("button", "sd-button", "Answer"));
    }
    onSubmit(form, () => {
      const typed = numberIn(form.querySelector("input").value);
      if (typed === null) write(this.status, "Type a number, such as 1.5.");
      else this.answer(typed);
    });
    return form;
  }

  async answer(answer) {
    const { number } = this.question;
    try {
      await this.send({ question: number, answer });
      if (this.question?.number !== number) return; // another question is open already
      this.picked = answer;
      this.show(this.question);
    } catch (error) {
      write(this.status, error.message);
    }
  }

  answerSentence() {
    return this.picked === null ? "" : `Your answer: ${answerWords(this.question, this.picked)}.`;
  }

  statusWords() {
    const { phase, answered } = this.question;
    if (phase === "open") return this.picked === null ? "" : `${this.answerSentence()} You can change it until voting closes.`;
    if (phase === "closed") return `Voting is closed (${answered} answered). Wait for the result.`;
    return ({ right: "✓ You were right. ", wrong: "✗ You were wrong. " }[this.outcome] ?? "") + resultWords(this.question);
  }
}
