// The teacher's part of a question: ask it, watch the answers, close voting, reveal the result; and the lesson summary.

import { answerBars, numberIn, resultWords } from "./class_results.js";
import { button, element, onSubmit, replaceParts } from "./dom.js";
import { LETTERS } from "./quiz_words.js";
import { saveFile } from "./share.js";
import { openQuestion } from "./tabs.js";

export class ClassQuestions {
  /** `quiz` has the questions of the quiz (`text`, `setup`, `options`); `send` posts a message to the class. */
  constructor(roles, quiz, send) {
    this.roles = roles;
    this.quiz = quiz;
    this.send = send;
    this.shown = "null";
    for (const [index, { text }] of quiz.entries()) {
      const option = element("option", "", `Quiz ${index + 1}: ${text}`);
      option.value = String(index);
      roles.quiz.append(option);
    }
    const { "ask-form": form } = roles;
    this.fields = form.elements;
    roles.quiz.addEventListener("change", () => this.fill());
    form.addEventListener("change", () => this.showKind());
    onSubmit(form, () => this.ask());
    document.addEventListener("sd-measured", ({ detail }) => this.measured(detail));
  }

  fill() {
    const chosen = this.quiz[this.roles.quiz.value];
    if (!chosen) return;
    this.fields.text.value = textOf(chosen);
    this.fields.kind.value = "choice";
    this.fields.options.value = chosen.options.join("\n");
    this.showKind();
  }

  showKind() {
    this.roles["options-label"].hidden = this.fields.kind.value === "number";
  }

  ask() {
    const { text, kind, options, hidden } = this.fields;
    const lines = options.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const choices = kind.value === "choice" ? lines : [];
    this.send({ type: "ask", text: text.value, kind: kind.value, options: choices, hidden: hidden.checked });
  }

  /** Index of the current question in the quiz; -1 if it is another one. */
  get quizIndex() {
    const { text, options } = this.question;
    return this.quiz.findIndex((one) => textOf(one) === text && one.options.join("\n") === options.join("\n"));
  }

  /** The quiz has measured the answer to one of its questions. */
  measured({ index, verdict }) {
    if (this.question && index === this.quizIndex) this.send({ type: "reveal", right: verdict.option, why: verdict.why });
  }

  /** Show `question` as the server counts it; null: there is none. */
  show(question) {
    this.question = question;
    const shown = JSON.stringify(question);
    if (shown === this.shown) return; // the buttons stay in place
    const isSamePhase = question && JSON.parse(this.shown)?.phase === question.phase;
    this.shown = shown;
    const { asked, "ask-form": form } = this.roles;
    asked.hidden = !question;
    form.hidden = Boolean(question);
    if (!question) return asked.replaceChildren();
    if (!isSamePhase) this.rebuild();
    this.counts.replaceChildren(element("p", "", answeredWords(question)), ...(question.bars ? [answerBars(question)] : []));
  }

  rebuild() {
    const { text, phase, why } = this.question;
    this.counts = element("div", "");
    const parts = [element("h2", "", text), this.counts];
    if (phase === "revealed") parts.push(element("p", "sd-class-right", resultWords(this.question)));
    if (why) parts.push(element("p", "", why));
    const buttons = element("p", "sd-class-buttons");
    if (phase === "open") buttons.append(this.sender("Close voting", { type: "close" }));
    if (phase === "closed") buttons.append(...this.waysToReveal());
    buttons.append(this.sender(phase === "revealed" ? "Next question" : "Dismiss", { type: "dismiss" }));
    replaceParts(this.roles.asked, ...parts, buttons);
  }

  sender(words, message) {
    return button("sd-button", words, () => this.send(message));
  }

  // A question of the quiz is measured there; for another one the teacher enters the result.
  waysToReveal() {
    const index = this.quizIndex;
    if (index >= 0) return [button("sd-button sd-class-main", "Measure in the quiz", () => openQuestion(index))];
    const { kind, options } = this.question;
    if (kind === "choice") return options.map((_, right) => this.sender(`${LETTERS[right]} is right`, { type: "reveal", right }));
    const field = element("input", "");
    field.inputMode = "decimal";
    field.setAttribute("aria-label", "Measured value");
    const reveal = button("sd-button sd-class-main", "Show as measured", () => {
      const right = numberIn(field.value);
      if (right === null) field.focus();
      else this.send({ type: "reveal", right });
    });
    return [field, reveal];
  }

  /** Show the lesson on one page; `fetchTable()` resolves to its CSV. */
  showSummary({ students, questions, games }, fetchTable) {
    const asked = questions.length === 1 ? "1 question" : `${questions.length} questions`;
    const parts = [
      element("h2", "", "Lesson summary"),
      element("p", "", `${asked}; at most ${students} students at a time.`),
      element("ol", "", ...questions.map(questionItem)),
    ];
    if (games.length) {
      const items = games.map(({ text, sentence }) => element("li", "", element("h3", "", text), element("p", "", sentence)));
      parts.push(element("h2", "", "The class as the draft model"), element("ol", "", ...items));
    }
    parts.push(button("sd-button", "Save as CSV", async () => saveFile("specdemo-class.csv", "text/csv", await fetchTable())));
    const { summary } = this.roles;
    summary.replaceChildren(...parts);
    summary.hidden = false;
    summary.scrollIntoView({ block: "nearest" });
  }
}

function questionItem(question) {
  const result = question.phase === "revealed" ? resultWords(question) : "No result.";
  const words = `${answeredWords(question)} ${result}`;
  return element("li", "", element("h3", "", question.text), answerBars(question), element("p", "", words));
}

function textOf({ text, setup }) {
  return `${text} ${setup}`.trim();
}

function answeredWords({ answered }) {
  return answered === 1 ? "1 answer." : `${answered} answers.`;
}
