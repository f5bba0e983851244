// The teacher's questions to the class: the form for asking, the view of the measurement, and the summary of the lesson.

import { absentWords, answerList, numberIn, resultWords } from "./class_results.js";
import { button, element, onSubmit, replaceParts, write } from "../common/dom.js";
import { currentTab, heldValues, openTab } from "../common/page.js";
import { counted } from "../common/words.js";
import { resultOf } from "../learn/quiz.js";
import { LETTERS, progressLine, tableOf } from "../learn/quiz_cards.js";
import { saveFile } from "../stage/share.js";
import { stageOfPage } from "../stage/stage.js";

const MAX_QUOTED = 120; // characters of the prompt in a question
const LONG = 180; // the number of characters above which the projector shows a question smaller

export class ClassQuestions {
  /**
   * `prepared`: questions that the server can measure, each with `name`, `label`, `text`, `setup` and `options`.
   * `defaults` are the settings of the widgets before they change. `send` posts a message to the class.
   */
  constructor(roles, prepared, defaults, send) {
    this.roles = roles;
    this.prepared = prepared;
    this.defaults = defaults;
    this.send = send;
    this.shown = "null";
    this.measurement = null; // what has arrived of the latest measurement: its `number`, `question` and `events`, and its `run` on the stage
    for (const { name, label } of prepared) {
      const option = element("option", "", label);
      option.value = name;
      roles.prepared.append(option);
    }
    const { "ask-form": form } = roles;
    this.fields = form.elements;
    roles.prepared.addEventListener("change", () => this.fill());
    form.addEventListener("change", () => this.showKind());
    form.addEventListener("input", ({ target: { name } }) => {
      if (["text", "kind", "options"].includes(name)) roles.prepared.value = ""; // it is the teacher's own question now
    });
    onSubmit(form, () => this.ask());
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
    const chosen = this.prepared.find(({ name }) => name === this.roles.prepared.value);
    const question = { type: "ask", text: text.value, kind: kind.value, options: choices, hidden: hidden.checked };
    if (chosen) {
      // The prompt may have changed since the form was filled.
      const settings = { ...this.defaults, ...heldValues(), prompt: promptNow() };
      Object.assign(question, { text: textOf(chosen), prepared: chosen.name, settings });
    }
    this.send(question);
  }

  /** The part of the latest measurement that this page has. */
  get seen() {
    const { number, events } = this.measurement ?? {};
    return number ? { measurement: number, events: events.length } : {};
  }

  /** Take the news of a measurement: the stage shows its run. */
  follow({ number, question, kind, events, ended }) {
    const stage = stageOfPage();
    if (number !== this.measurement?.number) {
      this.measurement = { number, question, events: [], run: null, isShown: false };
      if (kind === "run") {
        expectRun(true);
        this.measurement.run = stage.awaitRun();
      }
    }
    const { measurement } = this;
    const { run } = measurement;
    measurement.events.push(...events);
    if (run && run === stage.arriving) stage.receive(events);
    if (!run || !ended || measurement.isShown || isWatched(stage, run)) return;
    measurement.isShown = true;
    if (!run.hasBegun) expectRun(false);
    this.send({ type: "shown", measurement: number });
  }

  showMeasurement() {
    const { number, phase } = this.question;
    const { question, events, run } = this.measurement ?? {};
    const isShown = question === number && ["measuring", "revealed"].includes(phase);
    const { progress, sides } = resultOf(isShown ? events : []);
    const parts = progress && phase === "measuring" && !run?.hasBegun ? [progressLine(progress)] : []; // a run shows its own
    this.figures.replaceChildren(...parts, ...(sides.length ? [tableOf(sides)] : []));
  }

  /**
   * Show `question`, with the server's count of answers, to a class of so many `students`; null if there is no question.
   */
  show(question, students) {
    const before = this.question;
    this.question = question;
    if (question && this.figures && question.number === before?.number) this.showMeasurement();
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
  }

  /** Prepare the page for the next question, which may not have been asked yet. */
  begin() {
    this.roles.summary.hidden = true;
    if (this.question && !this.roles.prepared.value) this.fill();
  }

  rebuild() {
    const { text, options, phase, why, error } = this.question;
    this.counts = element("div", "sd-class-answers");
    this.figures = element("div", "sd-quiz-results");
    const parts = [element("h2", "", text), this.counts];
    if (phase === "revealed") parts.push(element("p", "sd-class-right", resultWords(this.question)));
    if (why) parts.push(element("p", "", why));
    if (error) parts.push(element("p", "sd-quiz-error", `${error} Press “Measure it” to repeat it.`));
    this.showMeasurement();
    const buttons = element("p", "sd-class-buttons");
    if (phase === "open") buttons.append(this.sender("Close voting", { type: "close" }));
    if (phase === "closed") buttons.append(...this.waysToReveal());
    if (phase === "measuring") buttons.append(this.sender("Stop measuring", { type: "close" }));
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
    const { kind, options, prepared } = this.question;
    if (prepared) return [button("sd-button sd-class-main", "Measure it", () => this.measure(prepared))];
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

  measure(name) {
    this.send({ type: "measure" });
    if (!this.prepared.find((one) => one.name === name).isOfQuiz) openTab("run");
  }

  /** Show a summary of the lesson; `fetchTable()` resolves to its questions as CSV. */
  showSummary({ students, questions, games }, fetchTable) {
    const asked = counted(questions.length, "question");
    const parts = [
      element("h2", "", "Lesson summary"),
      element("p", "", `${asked}; at most ${counted(students, "student")} at a time.`),
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
  const answered = `${counted(question.answered, "answer")}.`;
  const parts = [element("h3", "", question.text), answerList(question), element("p", "", `${answered} ${result}`)];
  if (question.figures) parts.push(element("p", "", question.figures));
  return element("li", "", ...parts);
}

function expectRun(isExpected) {
  document.dispatchEvent(new CustomEvent("sd-class-run", { detail: { isExpected } }));
}

/**
 * True while the projector plays the run, so that students must not read its result yet. A replay that is paused on another
 * tab, or has lost the stage, is not awaited.
 */
function isWatched(stage, run) {
  return stage.shown === run && stage.state === "playing" && !document.hidden && (stage.player.playing || currentTab() === "run");
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
