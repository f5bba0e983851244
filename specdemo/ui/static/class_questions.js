// The teacher's part of a question: ask it, watch the answers come in, close, tell what was measured, sum up.

import { answerBars } from "./class_bars.js";
import { element, replaceParts } from "./dom.js";
import { measuredWords, numberIn } from "./class_words.js";
import { LETTERS } from "./quiz_words.js";
import { saveFile } from "./share.js";
import { openQuestion } from "./tabs.js";

export class ClassQuestions {
  /** `quiz` are the questions of the quiz (`name`, `text`, `setup`, `options`); `say` sends a message to the class. */
  constructor(roles, quiz, say) {
    this.roles = roles;
    this.quiz = quiz;
    this.say = say;
    this.shown = "";
    for (const [index, { text }] of quiz.entries()) {
      const option = element("option", "", `${index + 1} of the quiz: ${text}`);
      option.value = String(index);
      roles.quiz.append(option);
    }
    roles.quiz.addEventListener("change", () => this.fill());
    roles["ask-form"].addEventListener("change", () => this.showKind());
    roles["ask-form"].addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    document.addEventListener("sd-measured", ({ detail }) => this.measured(detail));
  }

  get fields() {
    return this.roles["ask-form"].elements;
  }

  fill() {
    const chosen = this.quiz[this.roles.quiz.value];
    if (!chosen) return;
    this.fields.text.value = wordsOf(chosen);
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
    this.say({
      type: "ask",
      text: text.value,
      kind: kind.value,
      options: kind.value === "choice" ? lines : [],
      hidden: hidden.checked,
    });
  }

  /** The index of the question that is asked, where it is one of the quiz in its own words; else -1. */
  get inQuiz() {
    const { text, options } = this.question;
    return this.quiz.findIndex((one) => wordsOf(one) === text && one.options.join("\n") === options.join("\n"));
  }

  /** The quiz has measured what answers one of its questions. */
  measured({ index, verdict }) {
    if (this.question && index === this.inQuiz) this.say({ type: "tell", right: verdict.option, why: verdict.why });
  }

  /** `question` as the server counts it; null: none is asked. */
  show(question) {
    this.question = question;
    const text = JSON.stringify(question);
    if (text === this.shown) return; // what one is about to press stays
    const isSame = question && JSON.parse(this.shown || "null")?.phase === question.phase;
    this.shown = text;
    const { asked, "ask-form": form } = this.roles;
    asked.hidden = !question;
    form.hidden = Boolean(question);
    if (!question) return asked.replaceChildren();
    if (!isSame) this.lay();
    this.counts.replaceChildren(element("p", "", answeredWords(question)), ...(question.bars ? [answerBars(question)] : []));
  }

  lay() {
    const { text, phase, why } = this.question;
    this.counts = element("div", "");
    const parts = [element("h2", "", text), this.counts];
    if (phase === "told") parts.push(element("p", "sd-class-right", rightWords(this.question)), ...(why ? [element("p", "", why)] : []));
    const buttons = element("p", "sd-class-buttons");
    if (phase === "open") buttons.append(this.button("Close the answers", { type: "close" }));
    if (phase === "closed") buttons.append(...this.waysToTell());
    buttons.append(this.button(phase === "told" ? "Next question" : "Put it away", { type: "away" }));
    replaceParts(this.roles.asked, ...parts, buttons);
  }

  button(words, message) {
    const button = element("button", "sd-button", words);
    button.type = "button";
    button.addEventListener("click", () => this.say(message));
    return button;
  }

  // A question of the quiz is measured there; of another the teacher says what came out.
  waysToTell() {
    const index = this.inQuiz;
    if (index >= 0) {
      const go = element("button", "sd-button sd-class-main", "Measure it in the quiz");
      go.type = "button";
      go.addEventListener("click", () => openQuestion(index));
      return [go];
    }
    const { kind, options } = this.question;
    if (kind === "choice") return options.map((_, index) => this.button(`${LETTERS[index]} is right`, { type: "tell", right: index }));
    const field = element("input", "");
    field.inputMode = "decimal";
    field.setAttribute("aria-label", "What was measured");
    const tell = element("button", "sd-button sd-class-main", "That was measured");
    tell.type = "button";
    tell.addEventListener("click", () => {
      const value = numberIn(field.value);
      if (value === null) field.focus();
      else this.say({ type: "tell", right: value });
    });
    return [field, tell];
  }

  /** The lesson on one page; `fetchTable()` resolves to its CSV. */
  sumUp({ students, questions, games }, fetchTable) {
    const list = questions.map((question) =>
      element("li", "", element("h3", "", question.text), answerBars(question), element("p", "", `${answeredWords(question)} ${rightWords(question)}`)),
    );
    const save = element("button", "sd-button", "Save as a table (CSV)");
    save.type = "button";
    save.addEventListener("click", async () => saveFile("specdemo-class.csv", "text/csv", await fetchTable()));
    const { summary } = this.roles;
    const asked = questions.length === 1 ? "1 question was asked" : `${questions.length} questions were asked`;
    const head = element("p", "", `At most ${students} were here at a time; ${asked}.`);
    const played = games.map(({ text, sentence }) => element("li", "", element("h3", "", text), element("p", "", sentence)));
    const drafted = played.length ? [element("h2", "", "The class was the draft"), element("ol", "", ...played)] : [];
    summary.replaceChildren(element("h2", "", "The lesson"), head, element("ol", "", ...list), ...drafted, save);
    summary.hidden = false;
    summary.scrollIntoView({ block: "nearest" });
  }

  clear() {
    this.show(null);
    this.roles.summary.hidden = true;
  }
}

/** A question of the quiz in one paragraph. */
function wordsOf({ text, setup }) {
  return `${text} ${setup}`.trim();
}

function answeredWords({ answered }) {
  return answered === 1 ? "1 answer." : `${answered} answers.`;
}

function rightWords(question) {
  return question.phase === "told" ? measuredWords(question) : "Nothing was measured.";
}
