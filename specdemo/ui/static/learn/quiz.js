// The quiz: visitors predict an answer, which the browser stores, then run it. The run's events show the right option.

import { element, onDisabled, recall, remember, rolesOf } from "../common/dom.js";
import { GrowingLines, parseEvents } from "../common/ndjson.js";
import { noteLesson, tellJob } from "../common/page.js";
import { QuestionCard, ResultCard, scoreWords, verdictWords, whyWords } from "./quiz_cards.js";

const KEY = "specdemo-quiz";
const RECORDED = "learn/quiz-answers.ndjson";
const parts = {};

/** Called once by the Gradio component of the questions. */
export function mountQuestions({ element: host, base, settings }) {
  join({ asking: host.querySelector(".sd-quiz"), questions: settings.questions, base });
}

/** Called once by the Gradio component of the results; its value has the events of a run. */
export function mountResults({ element: host, props, watch }) {
  join({ telling: host.querySelector(".sd-quiz-results"), follow: (feed) => watch("value", () => feed(props.value ?? "")) });
}

// Starts the quiz when both components are mounted; either one may be first.
function join(part) {
  Object.assign(parts, part);
  if (parts.asking && parts.telling) parts.quiz = new Quiz(parts);
}

/** The input of the endpoint for the current run; Gradio calls this when it sends the request. */
export function askedQuestion() {
  return [parts.quiz.running + 1];
}

/** The index (from 0) of the question that an address names, or null if it names none. */
export function questionIn(search, count) {
  const named = Number(new URLSearchParams(search).get("question"));
  return Number.isInteger(named) && named >= 1 && named <= count ? named - 1 : null;
}

/** The events with which the question `number` was answered by the built-in models, as NDJSON. */
export async function recordedAnswer(base, number) {
  const response = await fetch(new URL(RECORDED, base));
  if (!response.ok) throw new Error(`status ${response.status}`);
  const lines = (await response.text()).split(/(?<=\n)/);
  return lines.filter((line) => JSON.parse(line).question === number).join("");
}

class Quiz {
  constructor({ asking, telling, questions, base, follow }) {
    this.questions = questions;
    this.base = base;
    this.root = asking;
    this.roles = { ...rolesOf(asking), ...rolesOf(telling) };
    this.answers = restored(recall(KEY), questions); // the answers by the names of their questions
    this.lines = new GrowingLines();
    this.running = null; // the index of the question that is being measured, or null
    this.events = [];
    this.asked = questions.map((question, index) => this.questionCard(question, index));
    this.measured = questions.map((question, index) => this.resultCard(question, index));
    this.roles["quiz-restart"].addEventListener("click", () => this.restart());
    this.wireButtons(asking.closest("#quiz"));
    follow((value) => this.feed(value));
    questions.forEach((_, index) => this.show(index));
    const open = questions.findIndex((question) => !this.answerTo(question));
    this.go(questionIn(location.search, questions.length) ?? Math.max(open, 0));
  }

  answerTo({ name }) {
    return this.answers.get(name);
  }

  store() {
    remember(KEY, JSON.stringify(Object.fromEntries(this.answers)));
  }

  questionCard(question, index) {
    const picked = this.answerTo(question)?.picked ?? null;
    const react = { onOpen: () => this.go(index, true), onPick: () => this.showReady() };
    const card = new QuestionCard(question, index + 1, picked, react);
    this.roles["quiz-list"].append(card.node);
    this.roles["quiz-dots"].append(element("li", "", card.dot));
    return card;
  }

  resultCard(question, index) {
    const next = () => {
      this.go(index + 1, true);
      this.asked[index + 1].title.focus();
    };
    const card = new ResultCard(question, index + 1, index + 1 < this.questions.length ? next : null);
    this.roles["quiz-answers"].append(card.node);
    return card;
  }

  // A run needs a prediction. Its end, for any reason, is known because Gradio then disables Stop.
  wireButtons(column) {
    const run = (event) => {
      if (!event.target.closest("#quiz-run")) return;
      const card = this.asked[this.current];
      if (card.picked === null) {
        event.stopPropagation();
        this.tell("Choose a prediction first.");
        card.choice.querySelector("input").focus();
      } else {
        this.start();
      }
    };
    column.addEventListener("click", run, true);
    this.button = column.querySelector("#quiz-run");
    const stop = column.querySelector("#quiz-stop");
    onDisabled(stop, () => this.end());
  }

  go(index, byVisitor = false) {
    this.current = index;
    this.root.dataset.at = index + 1;
    for (const cards of [this.asked, this.measured]) cards.forEach((card, at) => card.setCurrent(at === index));
    this.showReady();
    if (byVisitor) noteLesson("quiz", index + 1);
  }

  // The button Run can be pressed without a prediction; it then asks for one.
  showReady() {
    this.tell("");
    this.button.toggleAttribute("data-unready", this.asked[this.current].picked === null);
  }

  start() {
    this.running = this.current;
    tellJob("learn", "Your quiz question");
    this.lines.renew();
    this.events = [];
    this.tell("");
    this.lock(this.current);
  }

  end() {
    const index = this.running;
    if (index === null) return;
    this.running = null;
    tellJob("learn", null);
    this.lock(index);
    const { verdict, error } = resultOf(this.events);
    if (!verdict && !error) this.measured[index].showStopped();
  }

  /** Take the value of the component of the results; events after the end of a run are ignored. */
  feed(value) {
    const { events } = this.lines.read(value);
    if (this.running === null || !events.length) return;
    this.events.push(...events);
    const result = resultOf(this.events);
    if (result.verdict) this.conclude(this.running, result);
    else this.measured[this.running].showProgress(result);
  }

  /** Show a result with a verdict; if no option was measured, together with the recorded answer. */
  async conclude(index, result) {
    const recorded = result.verdict.option === null ? await this.recorded(index + 1) : null;
    this.keep(index, { ...result, recorded });
  }

  /** The recorded answer to the question `number`, as `{ place, option, why }`; null if it does not load. */
  async recorded(number) {
    try {
      const { place, verdict } = resultOf(parseEvents(await recordedAnswer(this.base, number)));
      return { place, ...verdict };
    } catch {
      return null;
    }
  }

  keep(index, { place, sides, verdict, recorded }) {
    const question = this.questions[index];
    const answer = { picked: this.asked[index].picked, place, sides, verdict, recorded };
    this.answers.set(question.name, answer);
    this.store();
    this.show(index);
    const { head, words } = verdictWords(answer, question.options);
    this.roles["quiz-live"].textContent = `${head} ${words} ${whyWords(answer)}`;
  }

  /** Show everything that depends on the answer to a question. */
  show(index) {
    const answer = this.answerTo(this.questions[index]);
    this.measured[index].show(answer);
    this.asked[index].show(answer);
    this.roles["quiz-score"].textContent = scoreWords([...this.answers.values()], this.questions.length);
    this.roles["quiz-restart"].hidden = !this.answers.size;
    this.lock(index);
  }

  // Locks a prediction, because its run has started.
  lock(index) {
    this.asked[index].lock(this.running === index || Boolean(this.answerTo(this.questions[index])));
  }

  restart() {
    this.answers.clear();
    this.store();
    this.asked.forEach((card, index) => {
      if (index === this.running) return;
      card.forget();
      this.show(index);
    });
    this.go(0, true);
  }

  tell(words) {
    this.roles["quiz-told"].textContent = words;
  }
}

/** The result of a run so far, from its events. */
export function resultOf(events) {
  const result = { question: null, place: "", progress: null, error: null, sides: [], verdict: null };
  for (const event of events) {
    if (event.type === "progress") result.progress = event;
    else if (event.type === "error") result.error = event.message;
    else if (event.type === "question") Object.assign(result, { question: event.question, place: event.place });
    else if (event.type === "side") result.sides[event.index] = { label: event.label, figures: event.figures };
    else if (event.type === "verdict") result.verdict = { option: event.option, why: event.why };
  }
  return result;
}

/**
 * The stored answers `{ picked, place, sides, verdict, recorded }` by the names of their questions; invalid ones are left out.
 */
export function restored(text, questions) {
  let kept = {};
  try {
    kept = JSON.parse(text ?? "{}") ?? {};
  } catch {
    // the text is not JSON, so this page has not stored it
  }
  const found = questions.map(({ name, options }) => [name, kept[name], options.length]);
  return new Map(found.filter(([, answer, count]) => fits(answer, count)).map(([name, answer]) => [name, answer]));
}

function fits(answer, count) {
  const isOption = (index) => Number.isInteger(index) && index >= 0 && index < count;
  const isFigure = (figure) => typeof figure?.label === "string" && typeof figure.text === "string";
  const isSide = (side) => typeof side?.label === "string" && Array.isArray(side.figures) && side.figures.every(isFigure);
  const { picked, place, sides, verdict, recorded = null } = answer ?? {};
  const isJudged = verdict && (verdict.option === null || isOption(verdict.option)) && typeof verdict.why === "string";
  const isRecorded = recorded === null || (isOption(recorded.option) && [recorded.place, recorded.why].every((words) => typeof words === "string"));
  const isMeasured = Array.isArray(sides) && sides.length === 2 && sides.every(isSide);
  return Boolean(isOption(picked) && typeof place === "string" && isJudged && isRecorded && isMeasured);
}
