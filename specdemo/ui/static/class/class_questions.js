// The teacher's questions to the class: the form for asking, the measurement of the answer, and the summary of the lesson.

import { absentWords, answerList, numberIn, resultWords } from "./class_results.js";
import { button, element, onSubmit, replaceParts, write } from "../common/dom.js";
import { mountTab } from "../common/page.js";
import { LETTERS, optionOf, progressLine, tableOf, whyWords } from "../learn/quiz_cards.js";
import { saveFile } from "../stage/share.js";

const MAX_QUOTED = 120; // characters of the prompt in a question
const LONG = 180; // the number of characters above which the projector shows a question smaller

export class ClassQuestions {
  /**
   * `prepared`: questions that this page can measure, each with `name`, `label`, `text`, `setup` and `options`. `send`
   * posts a message to the class.
   */
  constructor(roles, prepared, send) {
    this.roles = roles;
    this.prepared = prepared;
    this.send = send;
    this.shown = "null";
    this.measurement = null; // the result so far of the measurement in progress, or the last one; null if there is none
    this.prompt = null; // the prompt that the question quotes; null if it quotes none, or was asked before a reload or in another window
    for (const { name, label } of prepared) {
      const option = element("option", "", label);
      option.value = name;
      roles.prepared.append(option);
    }
    const { "ask-form": form } = roles;
    this.fields = form.elements;
    roles.prepared.addEventListener("change", () => this.fill());
    form.addEventListener("change", () => this.showKind());
    onSubmit(form, () => this.ask());
    document.addEventListener("sd-measuring", ({ detail }) => this.measuring(detail));
    document.addEventListener("sd-measured", ({ detail }) => this.measured(detail));
  }

  fill() {
    const chosen = this.prepared.find(({ name }) => name === this.roles.prepared.value);
    this.fields.text.value = chosen ? textOf(chosen) : "";
    this.fields.kind.value = "choice";
    this.fields.options.value = chosen ? chosen.options.join("\n") : "";
    this.showKind();
  }

  showKind() {
    this.roles["options-label"].hidden = this.fields.kind.value === "number";
  }

  ask() {
    const { text, kind, options, hidden } = this.fields;
    const lines = options.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const choices = kind.value === "choice" ? lines : [];
    const chosen = this.chosenQuestion(text.value, choices);
    const isOfRun = Boolean(chosen) && !chosen.isOfQuiz;
    this.prompt = isOfRun ? promptNow() : null;
    // The prompt may have changed since the form was filled.
    const words = isOfRun ? textOf(chosen) : text.value;
    this.send({ type: "ask", text: words, kind: kind.value, options: choices, hidden: hidden.checked, prepared: chosen?.name ?? null });
  }

  /** The prepared question in the form; undefined if the teacher has changed it or written another one. */
  chosenQuestion(text, options) {
    const isSame = (one) => text.startsWith(one.text) && text.endsWith(one.setup) && one.options.join("\n") === options.join("\n");
    return this.prepared.find((one) => one.name === this.roles.prepared.value && isSame(one));
  }

  /** The prepared question that the class has been asked; undefined if it is the teacher's own. */
  get askedQuestion() {
    return this.prepared.find(({ name }) => name === this.question.prepared);
  }

  isMeasured(name) {
    return Boolean(this.question) && this.question.phase !== "revealed" && name === this.question.prepared;
  }

  /** Follow the measurement of the question `name`, wherever on this page it was started. */
  measuring({ name, result }) {
    if (!this.isMeasured(name)) return;
    const isFirst = this.measurement === null;
    this.measurement = result;
    if (isFirst) this.send({ type: "measure" });
    else this.showMeasurement();
  }

  measured({ name, result }) {
    if (!this.isMeasured(name)) return;
    const { verdict, recorded, error, sides } = result;
    this.measurement = verdict ? result : null;
    const figures = sides ? figureWords(sides) : verdict?.why;
    if (verdict) this.send({ type: "reveal", right: optionOf(result), recorded: Boolean(recorded), why: whyWords(result), figures });
    else this.send({ type: "close" });
    if (error) write(this.roles.said, error);
  }

  showMeasurement() {
    const { progress, sides } = this.measurement ?? {};
    const parts = progress && this.question.phase === "measuring" ? [progressLine(progress)] : [];
    this.figures.replaceChildren(...parts, ...(sides?.length ? [tableOf(sides)] : []));
  }

  /**
   * Show `question`, with the server's count of answers, to a class of so many `students`; null if there is no question.
   */
  show(question, students) {
    const before = this.question;
    this.question = question;
    const shown = JSON.stringify([question, students]);
    if (shown === this.shown) return; // nothing has changed; do not replace the buttons
    this.shown = shown;
    const { asked, "ask-form": form } = this.roles;
    asked.hidden = !question;
    form.hidden = Boolean(question);
    const isNext = question?.number !== before?.number;
    if (isNext) this.begin();
    if (!question) asked.replaceChildren();
    else {
      if (isNext || question.phase !== before.phase) this.rebuild();
      const count = element("p", "sd-class-count", countWords(question, students));
      this.counts.replaceChildren(answerList(question), ...(question.phase === "revealed" ? [] : [count]));
    }
    if (isNext) (question ? asked : form).scrollIntoView({ block: "nearest" });
    // The measurement ended with the page that made it: this page was reloaded, or it is another window.
    if (question?.phase === "measuring" && !this.measurement) this.send({ type: "close" });
  }

  /** Prepare the page for the next question, which may not have been asked yet. */
  begin() {
    this.measurement = null;
    this.roles.summary.hidden = true;
    if (this.question && !this.roles.prepared.value) this.fill();
  }

  rebuild() {
    const { text, options, phase, why } = this.question;
    this.counts = element("div", "sd-class-answers");
    this.figures = element("div", "sd-quiz-results");
    const parts = [element("h2", "", text), this.counts];
    if (phase === "revealed") parts.push(element("p", "sd-class-right", resultWords(this.question)));
    if (why) parts.push(element("p", "", why));
    this.showMeasurement();
    const buttons = element("p", "sd-class-buttons");
    if (phase === "open") buttons.append(this.sender("Close voting", { type: "close" }));
    if (phase === "closed") buttons.append(...this.waysToReveal());
    buttons.append(this.sender(phase === "revealed" ? "Next question" : "Skip question", { type: "dismiss" }));
    const { asked } = this.roles;
    asked.dataset.phase = phase;
    asked.toggleAttribute("data-long", [text, ...options].join("").length > LONG);
    replaceParts(asked, ...parts, this.figures, buttons);
  }

  sender(words, message) {
    return button("sd-button", words, () => this.send(message));
  }

  // A prepared question is measured. For any other question the teacher enters the result.
  waysToReveal() {
    const prepared = this.askedQuestion;
    if (prepared) return [button("sd-button sd-class-main", "Measure it", () => measure(prepared, this.prompt))];
    const { kind, options } = this.question;
    if (kind === "choice") return options.map((_, right) => this.sender(`${LETTERS[right]} is right`, { type: "reveal", right }));
    const field = element("input", "");
    field.inputMode = "decimal";
    field.setAttribute("aria-label", "Measured value");
    const reveal = button("sd-button sd-class-main", "Show the measured value", () => {
      const right = numberIn(field.value);
      if (right === null) field.focus();
      else this.send({ type: "reveal", right });
    });
    return [field, reveal];
  }

  /** Show a summary of the lesson; `fetchTable()` resolves to its questions as CSV. */
  showSummary({ students, questions, games }, fetchTable) {
    const asked = questions.length === 1 ? "1 question" : `${questions.length} questions`;
    const parts = [
      element("h2", "", "Lesson summary"),
      element("p", "", `${asked}; at most ${students === 1 ? "1 student" : `${students} students`} at a time.`),
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
  const answered = question.answered === 1 ? "1 answer." : `${question.answered} answers.`;
  const parts = [element("h3", "", question.text), answerList(question), element("p", "", `${answered} ${result}`)];
  if (question.figures) parts.push(element("p", "", question.figures));
  return element("li", "", ...parts);
}

/** The figures of the measured sides in words, such as "k = 3: Acceptance rate α 50%; k = 12: Acceptance rate α 20%." */
function figureWords(sides) {
  const words = sides.map(({ label, figures }) => `${label}: ${figures.map((one) => `${one.label} ${one.text}`).join(", ")}`);
  return `${words.join("; ")}.`;
}

async function measure({ name, isOfQuiz }, prompt) {
  if (isOfQuiz) await mountTab("learn", ".sd-quiz[data-at]");
  const changed = prompt === promptNow() ? null : prompt;
  document.dispatchEvent(new CustomEvent("sd-measure", { detail: { name, prompt: changed } }));
}

// The setup of a question of the quiz quotes its prompt; a question about the run quotes the prompt of the tab Run.
function textOf({ text, setup, isOfQuiz }) {
  if (isOfQuiz) return `${text} ${setup}`;
  const prompt = promptNow().replace(/\s+/g, " ");
  return `${text} “${prompt.length > MAX_QUOTED ? `${[...prompt].slice(0, MAX_QUOTED).join("")}…` : prompt}” ${setup}`;
}

function promptNow() {
  return document.querySelector("#prompt textarea").value.trim();
}

// An answer without a student who is here is that of a student who has left since, or of a script.
function countWords({ answered, absent, phase }, students) {
  const words = phase === "open" ? `${answered} of ${students + absent} have answered` : `${answered} answered`;
  return words + absentWords(absent);
}
