// The quiz: predict, then run. A run's events say which option is right.

import { element, recall, remember, rolesOf } from "./dom.js";
import { GrowingLines } from "./ndjson.js";
import { QuestionCard, ResultCard, scoreWords, verdictWords } from "./quiz_cards.js";

const parts = {};

/** Called once by the Gradio component that asks; its value is the question's number. */
export function mountQuestions({ element: host, props, settings }) {
  const choose = (number) => {
    props.value = number;
  };
  join({ asking: host.querySelector(".sd-quiz"), questions: settings.questions, choose });
}

/** Called once by the Gradio component that shows what was measured; its value is the events of a run. */
export function mountResults({ element: host, props, watch }) {
  join({ telling: host.querySelector(".sd-quiz-results"), follow: (feed) => watch("value", () => feed(props.value ?? "")) });
}

// Either component may be the first to be there.
function join(part) {
  Object.assign(parts, part);
  if (parts.asking && parts.telling) new Quiz(parts);
}

/** Which question an address names, from 0; null where it names none. */
export function questionIn(search, count) {
  const named = Number(new URLSearchParams(search).get("question"));
  return Number.isInteger(named) && named >= 1 && named <= count ? named - 1 : null;
}

class Quiz {
  constructor({ asking, telling, questions, choose, follow }) {
    this.questions = questions;
    this.choose = choose;
    this.root = asking;
    this.roles = { ...rolesOf(asking), ...rolesOf(telling) };
    this.answers = new Answers(questions);
    this.run = new QuizRun();
    this.asked = questions.map((question, index) => this.questionCard(question, index));
    this.measured = questions.map((question, index) => this.resultCard(question, index));
    this.roles["quiz-restart"].addEventListener("click", () => this.restart());
    this.wireButtons(asking.closest("#quiz"));
    follow((value) => this.feed(value));
    document.addEventListener("sd-question", ({ detail }) => this.go(detail.index, true));
    questions.forEach((_, index) => this.show(index));
    const open = questions.findIndex((question) => !this.answers.of(question));
    this.go(questionIn(location.search, questions.length) ?? Math.max(open, 0));
  }

  questionCard(question, index) {
    const picked = this.answers.of(question)?.picked ?? null;
    const react = { onOpen: () => this.go(index, true), onPick: () => this.showReady() };
    const card = new QuestionCard(question, index + 1, picked, react);
    this.roles["quiz-list"].append(card.node);
    this.roles["quiz-dots"].append(element("li", "", card.dot));
    return card;
  }

  resultCard(question, index) {
    const next = () => {
      this.go(index + 1, true);
      this.asked[index + 1].focusTitle();
    };
    const card = new ResultCard(question, index + 1, index + 1 < this.questions.length ? next : null);
    this.roles["quiz-answers"].append(card.node);
    return card;
  }

  // A prediction comes first; and the end of a run shows in the page's own button, whatever ended it.
  wireButtons(column) {
    const run = (event) => {
      if (!event.target.closest("#quiz-run")) return;
      const card = this.asked[this.current];
      if (card.picked === null) {
        event.stopPropagation();
        this.tell("Choose a prediction first.");
        card.focusOptions();
      } else {
        this.start();
      }
    };
    column.addEventListener("click", run, true);
    this.button = column.querySelector("#quiz-run");
    const stop = column.querySelector("#quiz-stop");
    const ended = () => stop.disabled && this.end();
    new MutationObserver(ended).observe(stop, { attributeFilter: ["disabled"] });
  }

  go(index, byVisitor = false) {
    this.current = index;
    this.choose(index + 1);
    this.root.dataset.at = index + 1;
    for (const cards of [this.asked, this.measured]) cards.forEach((card, at) => card.setCurrent(at === index));
    this.showReady();
    if (byVisitor) noteInAddress(index + 1);
  }

  // The button can be pressed before a prediction has been made, but says that it comes first.
  showReady() {
    this.tell("");
    this.button.toggleAttribute("data-unready", this.asked[this.current].picked === null);
  }

  start() {
    this.run.begin(this.current);
    this.tell("");
    this.lock(this.current);
  }

  end() {
    const { index } = this.run;
    if (index === null) return;
    const stopped = !this.run.end();
    this.lock(index);
    if (stopped) this.measured[index].showStopped();
  }

  /** Show what has come of the run; what comes behind its end counts for nothing. */
  feed(value) {
    const { index } = this.run;
    const result = this.run.read(value);
    if (result?.verdict) this.keep(index, result);
    else if (result) this.measured[index].showProgress(result);
  }

  keep(index, { place, sides, verdict }) {
    const question = this.questions[index];
    const answer = { picked: this.asked[index].picked, place, sides, verdict };
    this.answers.keep(question, answer);
    this.show(index);
    document.dispatchEvent(new CustomEvent("sd-measured", { detail: { index, verdict } }));
    const { head, words } = verdictWords(answer, question.options);
    this.roles["quiz-live"].textContent = `${head} ${words} ${verdict.why}`;
  }

  /** Everything that follows from whether and how a question is answered. */
  show(index) {
    const answer = this.answers.of(this.questions[index]);
    this.measured[index].show(answer);
    this.asked[index].show(answer);
    const answers = this.answers.all();
    this.roles["quiz-score"].textContent = scoreWords(answers, this.questions.length);
    this.roles["quiz-restart"].hidden = !answers.length;
    this.lock(index);
  }

  // A prediction stands from the press of the button on.
  lock(index) {
    this.asked[index].lock(this.run.index === index || Boolean(this.answers.of(this.questions[index])));
  }

  restart() {
    this.answers.clear();
    this.asked.forEach((card, index) => {
      if (index === this.run.index) return;
      card.forget();
      this.show(index);
    });
    this.go(0, true);
  }

  tell(words) {
    this.roles["quiz-told"].textContent = words;
  }
}

// So that the address at hand is always a link to what is asked.
function noteInAddress(number) {
  const url = new URL(location.href);
  url.searchParams.set("lesson", "quiz");
  url.searchParams.set("question", number);
  history.replaceState(history.state, "", url);
}

/** What a run has told so far, from its events. */
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

/** One run after the other; `index` is the question (from 0) of the one under way, null between two. */
export class QuizRun {
  constructor() {
    this.lines = new GrowingLines();
    this.index = null;
    this.events = [];
  }

  begin(index) {
    this.index = index;
    this.lines.renew();
    this.events = [];
  }

  /** What has come of the run by now (see `resultOf`); null where `value` has nothing new or none is under way. */
  read(value) {
    const { events } = this.lines.read(value);
    if (this.index === null || !events.length) return null;
    this.events.push(...events);
    return resultOf(this.events);
  }

  /** It is over: whether it came to a verdict or a fault, rather than being stopped. */
  end() {
    this.index = null;
    const { verdict, error } = resultOf(this.events);
    return Boolean(verdict || error);
  }
}

const KEY = "specdemo-quiz";

/** What became of a prediction: right, wrong or too close to call. */
export function judge({ picked, verdict }) {
  if (verdict.option === null) return "close";
  return verdict.option === picked ? "right" : "wrong";
}

/** The answers `{ picked, place, sides, verdict }` to `questions`, those of earlier visits included. */
export class Answers {
  constructor(questions) {
    this.byName = restored(recall(KEY), questions);
  }

  /** The answer to a question, or undefined. */
  of({ name }) {
    return this.byName.get(name);
  }

  all() {
    return [...this.byName.values()];
  }

  keep({ name }, answer) {
    this.byName.set(name, answer);
    this.store();
  }

  clear() {
    this.byName.clear();
    this.store();
  }

  store() {
    remember(KEY, JSON.stringify(Object.fromEntries(this.byName)));
  }
}

/** Answers of earlier visits by the questions' names; whatever does not fit the questions is left out. */
export function restored(text, questions) {
  let kept = {};
  try {
    kept = JSON.parse(text ?? "{}") ?? {};
  } catch {
    // Somebody else's.
  }
  const found = questions.map(({ name, options }) => [name, kept[name], options.length]);
  return new Map(found.filter(([, answer, count]) => fits(answer, count)).map(([name, answer]) => [name, answer]));
}

function fits(answer, count) {
  const isOption = (index) => Number.isInteger(index) && index >= 0 && index < count;
  const { picked, place, sides, verdict } = answer ?? {};
  const isSide = (side) => typeof side?.label === "string" && Array.isArray(side.figures) && side.figures.every(isFigure);
  const isFigure = (figure) => typeof figure?.label === "string" && typeof figure.text === "string";
  const judged = verdict && (verdict.option === null || isOption(verdict.option)) && typeof verdict.why === "string";
  const measured = Array.isArray(sides) && sides.length === 2 && sides.every(isSide);
  return Boolean(isOption(picked) && typeof place === "string" && judged && measured);
}
