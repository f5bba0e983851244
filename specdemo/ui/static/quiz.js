// The quiz: predict, then run. Which option is right comes with a run's events; nothing here knows an answer.

import { element, rolesOf } from "./dom.js";
import { recall, remember } from "./memory.js";
import { GrowingLines } from "./ndjson.js";
import { progressBar } from "./progress_bar.js";

const KEY = "specdemo-quiz";
const LETTERS = "ABCD";
const SIGNS = { right: "✓", wrong: "✗", close: "≈" };
const HEADS = { right: "As you predicted.", wrong: "Not as you predicted.", close: "No verdict." };

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

/** What became of a prediction: right, wrong or too close to call. */
export function judge({ picked, verdict }) {
  if (verdict.option === null) return "close";
  return verdict.option === picked ? "right" : "wrong";
}

/** The score in words; `answers` are those there are, of `count` questions. */
export function scoreWords(answers, count) {
  const outcomes = answers.map(judge);
  const right = outcomes.filter((outcome) => outcome === "right").length;
  const close = outcomes.filter((outcome) => outcome === "close").length;
  if (!outcomes.length) return "Nothing answered yet";
  const done = outcomes.length === count ? "All done: " : "";
  return `${done}${right} of ${outcomes.length - close} predicted${close ? `, ${close} too close to call` : ""}`;
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

class Quiz {
  constructor({ asking, telling, questions, choose, follow }) {
    this.questions = questions;
    this.choose = choose;
    this.root = asking;
    this.roles = { ...rolesOf(asking), ...rolesOf(telling) };
    this.answers = restored(recall(KEY), questions);
    this.picks = questions.map(({ name }) => this.answers.get(name)?.picked ?? null);
    this.running = null;
    this.lines = new GrowingLines();
    this.dots = questions.map((question, index) => this.dot(question, index));
    this.pages = questions.map((question, index) => this.page(question, index));
    this.results = questions.map((question, index) => this.result(index));
    this.roles["quiz-restart"].addEventListener("click", () => this.restart());
    this.wireButtons(asking.closest("#quiz"));
    follow((value) => this.feed(value));
    this.restoreAll();
    const open = questions.findIndex(({ name }) => !this.answers.has(name));
    this.go(questionIn(location.search, questions.length) ?? Math.max(open, 0));
  }

  // A prediction comes first; and the end of a run shows in the page's own button, whatever ended it.
  wireButtons(column) {
    const run = (event) => {
      if (!event.target.closest("#quiz-run")) return;
      if (this.picks[this.current] === null) {
        event.stopPropagation();
        this.tell("Choose a prediction first.");
        this.pages[this.current].querySelector("input").focus();
      } else {
        this.start();
      }
    };
    column.addEventListener("click", run, true);
    const stop = column.querySelector("#quiz-stop");
    const ended = () => stop.disabled && this.end();
    new MutationObserver(ended).observe(stop, { attributeFilter: ["disabled"] });
  }

  dot({ text }, index) {
    const button = element("button", "sd-dot", String(index + 1));
    button.type = "button";
    button.title = text;
    button.addEventListener("click", () => this.go(index, true));
    this.roles["quiz-dots"].append(element("li", "", button));
    return button;
  }

  page({ text, setup, options }, index) {
    const title = element("h3", "", `${index + 1}. ${text}`);
    title.tabIndex = -1;
    const fieldset = element("fieldset", "", element("legend", "", "What do you predict?"));
    fieldset.append(...options.map((option, place) => this.option(index, option, place)));
    const page = element("article", "", title, element("p", "sd-quiz-setup", setup), fieldset);
    page.dataset.question = index + 1;
    this.roles["quiz-list"].append(page);
    return page;
  }

  option(index, text, place) {
    const input = element("input", "");
    input.type = "radio";
    input.name = `sd-quiz-${index + 1}`;
    input.value = place;
    input.checked = this.picks[index] === place;
    input.addEventListener("change", () => {
      this.picks[index] = place;
      this.tell("");
    });
    return element("label", "", input, element("b", "", LETTERS[place]), element("span", "", text));
  }

  result(index) {
    const result = element("article", "");
    result.dataset.result = index + 1;
    this.roles["quiz-answers"].append(result);
    return result;
  }

  go(index, byVisitor = false) {
    this.current = index;
    this.choose(index + 1);
    this.root.dataset.at = index + 1;
    this.tell("");
    for (const list of [this.pages, this.results]) list.forEach((part, at) => part.toggleAttribute("data-current", at === index));
    this.dots.forEach((dot, at) => {
      if (at === index) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
    if (byVisitor) noteInAddress(index + 1);
  }

  start() {
    this.running = this.current;
    this.lines.renew();
    this.events = [];
    this.tell("");
    this.lock(this.running);
  }

  end() {
    const index = this.running;
    if (index === null) return;
    this.running = null;
    this.lock(index);
    if (this.told?.verdict || this.told?.error) return;
    this.results[index].replaceChildren(element("p", "sd-quiz-note", "Stopped before both runs were measured: no verdict."));
  }

  /** Show all that a run has told so far; what comes behind its end counts for nothing. */
  feed(value) {
    const { events } = this.lines.read(value);
    const index = this.running;
    if (index === null || !events.length) return;
    this.events.push(...events);
    const told = resultOf(this.events);
    this.told = told;
    if (told.verdict) this.keep(index, told);
    else this.results[index].replaceChildren(...this.underWay(told));
  }

  keep(index, { place, sides, verdict }) {
    const answer = { picked: this.picks[index], place, sides, verdict };
    this.answers.set(this.questions[index].name, answer);
    remember(KEY, JSON.stringify(Object.fromEntries(this.answers)));
    this.show(index);
    const { head, words } = this.verdictWords(index);
    this.roles["quiz-live"].textContent = `${head} ${words} ${verdict.why}`;
  }

  restoreAll() {
    this.questions.forEach((_, index) => this.show(index));
  }

  /** Everything that follows from whether and how a question is answered. */
  show(index) {
    const { name } = this.questions[index];
    const answer = this.answers.get(name);
    const outcome = answer && judge(answer);
    this.results[index].replaceChildren(...(answer ? this.finished(index, answer) : []));
    this.pages[index].querySelectorAll("label").forEach((label, place) => label.toggleAttribute("data-measured", answer?.verdict.option === place));
    const dot = this.dots[index];
    if (outcome) dot.dataset.outcome = outcome;
    else delete dot.dataset.outcome;
    dot.setAttribute("aria-label", `Question ${index + 1}${outcome ? `: ${HEADS[outcome]}` : ""}`);
    const answers = [...this.answers.values()];
    this.roles["quiz-score"].textContent = scoreWords(answers, this.questions.length);
    this.roles["quiz-restart"].hidden = !answers.length;
    this.lock(index);
  }

  // A prediction stands from the press of the button on.
  lock(index) {
    const settled = this.running === index || this.answers.has(this.questions[index].name);
    this.pages[index].querySelector("fieldset").disabled = settled;
  }

  restart() {
    this.answers.clear();
    remember(KEY, "{}");
    this.questions.forEach((_, index) => {
      if (index === this.running) return;
      this.picks[index] = null;
      for (const input of this.pages[index].querySelectorAll("input")) input.checked = false;
      this.show(index);
    });
    this.go(0, true);
  }

  underWay({ progress, error, sides }) {
    if (error) return [element("p", "sd-quiz-error", error)];
    const bar = progressBar("Measured so far");
    bar.value = progress.fraction;
    const notice = element("p", "sd-quiz-progress", element("span", "", progress.text), bar);
    return sides.length ? [notice, tableOf(sides)] : [notice];
  }

  finished(index, { sides, verdict, place }) {
    const { kind, head, words } = this.verdictWords(index);
    const said = element("p", "sd-quiz-verdict", element("b", "", `${SIGNS[kind]} ${head}`), ` ${words}`);
    said.dataset.kind = kind;
    const foot = element("footer", "", element("span", "", `Measured on ${place}.`));
    if (index + 1 < this.questions.length) foot.append(this.nextButton(index + 1));
    const heading = element("h4", "", `Question ${index + 1}`);
    return [heading, tableOf(sides), said, element("p", "sd-quiz-why", verdict.why), foot];
  }

  verdictWords(index) {
    const answer = this.answers.get(this.questions[index].name);
    const kind = judge(answer);
    const named = (place) => `${LETTERS[place]}, “${this.questions[index].options[place]}”.`;
    const measured = kind === "close" ? "" : `Measured: ${named(answer.verdict.option)}`;
    const words = kind === "wrong" ? `${measured} You said ${LETTERS[answer.picked]}.` : measured;
    return { kind, head: HEADS[kind], words };
  }

  nextButton(index) {
    const button = element("button", "sd-button", "Next question ›");
    button.type = "button";
    button.addEventListener("click", () => {
      this.go(index, true);
      this.pages[index].querySelector("h3").focus();
    });
    return button;
  }

  tell(words) {
    this.roles["quiz-told"].textContent = words;
  }
}

/** Both sides' figures beside each other; bars are as long as the larger of the two allows. */
function tableOf(sides) {
  const head = element("tr", "", element("td", ""), ...sides.map(({ label }) => columnHead(label)));
  const rows = sides[0].figures.map(({ label }, row) => {
    const figures = sides.map((side) => side.figures[row]);
    const most = Math.max(...figures.map((figure) => figure?.value ?? 0));
    const title = element("th", "", label);
    title.scope = "row";
    return element("tr", "", title, ...figures.map((figure) => cell(figure, most)));
  });
  return element("table", "", element("thead", "", head), element("tbody", "", ...rows));
}

function columnHead(label) {
  const head = element("th", "", label);
  head.scope = "col";
  return head;
}

function cell(figure, most) {
  const bar = element("i", "");
  bar.style.width = `${most > 0 ? (100 * (figure.value ?? 0)) / most : 0}%`;
  return element("td", "", element("b", "", figure.text), bar);
}

// So that the address at hand is always a link to what is asked.
function noteInAddress(number) {
  const url = new URL(location.href);
  url.searchParams.set("lesson", "quiz");
  url.searchParams.set("question", number);
  history.replaceState(history.state, "", url);
}
