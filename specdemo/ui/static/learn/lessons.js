// The lessons. One is shown at a time, with buttons that play a recording or start a run. The quiz is in quiz.js.

import { button, element, recall, remember, write } from "../common/dom.js";
import { leadsToLessons, noteLesson, settingsOf, startRun } from "../common/page.js";
import { showProof } from "../proof/proof.js";
import { rateWords } from "./rates.js";
import { EXAMPLE, EXAMPLE_U, overlapFigure } from "../stage/overlap.js";
import { sourceWords } from "../stage/recordings.js";
import { classLink } from "../stage/share.js";
import { stageOfPage } from "../stage/stage.js";

const SEEN_KEY = "specdemo-lessons";
const DONE_KEY = "specdemo-tasks";
const QUIZ = "quiz";

/** Called once by the Gradio component. */
export function mountLessons({ element: host, trigger }) {
  const root = host.querySelector(".sd-learn");
  const lessons = new Lessons(root, (address) => startRun(trigger, address));
  if (document.body.classList.contains("sd-copy")) for (const link of root.querySelectorAll("[data-leads=live]")) link.removeAttribute("href");
  root.querySelector("[data-role=class-link]").addEventListener("click", () => trigger("copy"));
  const stop = document.querySelector("#stop");
  if (stop) lessons.followRuns(stop);
}

class Lessons {
  constructor(root, run) {
    this.root = root;
    this.pages = [...root.querySelectorAll("[data-lesson]")];
    this.names = this.pages.map((page) => page.dataset.lesson);
    root.querySelector("[data-role=overlap]").append(overlapFigure(EXAMPLE, EXAMPLE_U, ({ name }) => name));
    this.seen = new Set(recallNames(SEEN_KEY));
    this.tasks = new Tasks(recallNames(DONE_KEY));
    this.dots = this.pages.map((page, index) => this.dot(page, index));
    const onClick = (selector, act) => {
      for (const node of root.querySelectorAll(selector)) node.addEventListener("click", (event) => act(node, event));
    };
    onClick("[data-go]", ({ dataset }) => this.go(this.current + (dataset.go === "next" ? 1 : -1)));
    onClick("[data-show]", (node, event) => this.show(node, event.detail > 0));
    onClick("[data-step]", (node) => this.step(node));
    onClick("[data-run]", (node) => {
      stageOfPage().topic.expect(topicOf(node));
      run(node.dataset.run);
    });
    onClick("[data-proof]", (node) => showProof(node.dataset.proof));
    onClick(".sd-answer button", (node) => this.answer(node));
    document.addEventListener("sd-moment", ({ detail }) => this.follow(detail));
    this.tickTasks();
    this.go(lessonIn(location.search, this.names), false);
    // A class link may name a recording, which then has the stage in place of the lesson's.
    const asked = new URLSearchParams(location.search);
    this.isStageTaken = asked.has("lesson") && asked.has("trace");
    this.followTabs();
    addEventListener("popstate", () => {
      const index = lessonIn(location.search, this.names);
      if (leadsToLessons(location) && index !== this.current) this.go(index, true, true);
    });
  }

  show(node, byPointer) {
    if (byPointer) node.blur(); // the space bar then pauses the run, and does not press the button again
    return this.present(JSON.parse(node.dataset.show), node);
  }

  /** Step through the recording in `data-step` by target passes, from its start if it has ended or is not shown. */
  async step(node) {
    const { step } = node.dataset;
    const { recording } = JSON.parse(step);
    const stage = stageOfPage();
    if (stage.recording !== recording || stage.player.atEnd) await this.present(JSON.parse(step), node);
    stage.player.step(stage.trace.roundStops(stage.steppedLane), 1);
  }

  async present(shown, node) {
    const stage = stageOfPage();
    await stage.present(shown, topicOf(node));
    // The large letters of a lesson leave no room for the run below it.
    if (document.body.classList.contains("sd-projector")) stage.root.querySelector(".sd-screen").scrollIntoView({ block: "nearest" });
  }

  /** Give the stage to the current lesson when the tab opens, and back to the visitor's run when the tab Run opens. */
  followTabs() {
    const follow = () => {
      const { tab } = document.body.dataset;
      if (tab === "learn" && !stageOfPage().lesson) this.setStage();
      if (tab === "run") stageOfPage().giveBack();
    };
    new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-tab"] });
    if (stageOfPage()) follow();
  }

  /** Show what the lesson begins with: `data-opens` is an input of `Stage.present`, and may limit the lesson's topic. */
  setStage() {
    if (this.isStageTaken) return void (this.isStageTaken = false);
    const page = this.pages[this.current];
    const { opens } = page.dataset;
    if (!opens) return;
    const { topic, ...shown } = JSON.parse(opens);
    stageOfPage().present(shown, { ...topicOf(page), ...topic });
  }

  /** Show the lessons' Stop button while a run can be stopped; `stop` is the Stop button of the page. */
  followRuns(stop) {
    const end = this.root.querySelector("[data-role=end-run]");
    const show = () => {
      end.hidden = stop.disabled;
      this.root.toggleAttribute("data-busy", !stop.disabled);
    };
    new MutationObserver(show).observe(stop, { attributeFilter: ["disabled"] });
    end.addEventListener("click", () => stop.click());
    show();
  }

  follow(moment) {
    this.showRates();
    if (this.root.checkVisibility()) this.take(moment);
  }

  /** Fill in the table of acceptance rates with the values of the run on the stage. */
  showRates() {
    const stage = stageOfPage();
    const words = rateWords(stage?.trace);
    for (const node of this.root.querySelectorAll("[data-rate]")) write(node, words[node.dataset.rate]);
    write(this.root.querySelector("[data-rate-source]"), stage?.trace.end ? sourceWords(stage) : "one run");
  }

  answer(button) {
    const isRight = button.hasAttribute("data-right");
    for (const other of button.parentElement.querySelectorAll("button")) other.toggleAttribute("data-picked", other === button);
    button.parentElement.querySelector("[role=status]").textContent = isRight ? "✓ Right." : "✗ No. Look again.";
    this.take({ answered: isRight });
  }

  take(moment) {
    if (!this.tasks.take(this.names[this.current], moment)) return;
    remember(DONE_KEY, [...this.tasks.done].join());
    this.tickTasks();
  }

  tickTasks() {
    this.pages.forEach((page, at) => {
      const isDone = this.tasks.done.has(this.names[at]);
      for (const part of [page, this.dots[at]]) part.toggleAttribute("data-done", isDone);
    });
  }

  dot(page, index) {
    const { lesson, dot: label } = page.dataset;
    const dot = button("sd-dot", label ?? lesson, () => this.go(index));
    dot.title = page.querySelector("h2").textContent;
    dot.setAttribute("aria-label", `${label ?? `Lesson ${lesson}`}: ${dot.title}`);
    this.root.querySelector("[data-role=lesson-dots]").append(element("li", "", dot));
    return dot;
  }

  go(index, byVisitor = true, isInAddress = false) {
    if (index < 0 || index >= this.pages.length) return;
    // The first lesson opens by itself, so it counts as seen when the visitor leaves it.
    if (byVisitor) this.seen.add(this.names[this.current]);
    this.current = index;
    const name = this.names[index];
    this.root.dataset.at = document.body.dataset.learn = name;
    this.pages.forEach((page, at) => page.toggleAttribute("data-current", at === index));
    this.root.querySelector("[data-role=class-told]").textContent = "";
    if (byVisitor) {
      this.seen.add(name);
      remember(SEEN_KEY, [...this.seen].join());
      if (!isInAddress) noteLesson(name);
      this.setStage();
    }
    this.dots.forEach((dot, at) => {
      if (at === index) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
      dot.toggleAttribute("data-seen", this.seen.has(this.names[at]));
    });
    this.root.querySelector("[data-go=back]").disabled = index === 0;
    this.root.querySelector("[data-go=next]").disabled = index === this.pages.length - 1;
  }
}

// Each lesson has a topic; a button of the lesson may limit it further.
function topicOf(node) {
  const { topic } = node.closest("[data-lesson]").dataset;
  return { ...JSON.parse(topic), ...JSON.parse(node.dataset.topic ?? "{}") };
}

function recallNames(key) {
  return (recall(key) ?? "").split(",").filter(Boolean);
}

/** The index of the lesson that an address names; 0 if the address names none of `names`. */
export function lessonIn(search, names) {
  return Math.max(0, names.indexOf(new URLSearchParams(search).get("lesson")));
}

const isAnswered = ({ answered }) => answered;

/**
 * Maps each lesson to a function that returns whether a moment completes its task. A moment is the visitor's answer to the
 * lesson's question, or what the stage shows (see `Stage.tell`).
 */
const TASKS = {
  1: isAnswered,
  2: ({ recording, focus, settled }) => recording === "five" && focus !== "baseline" && settled > 0,
  3: isAnswered,
  4: isAnswered,
  5: isAnswered,
  6: ({ divergence }) => divergence,
  7: isAnswered,
};

/** The completed tasks; `done` has the names of the lessons whose tasks were completed on earlier visits. */
export class Tasks {
  constructor(done) {
    this.done = new Set(done);
  }

  /** Take an answer or a moment of the stage during `lesson`; returns true if it completes the task of the lesson. */
  take(lesson, moment) {
    if (this.done.has(lesson) || !TASKS[lesson]?.(moment)) return false;
    this.done.add(lesson);
    return true;
  }
}

/** Copy a link for a class: to the current lesson, with the prompt and settings in the page's widgets. */
export async function copyClassLink(names, values) {
  const lesson = document.querySelector(".sd-learn").dataset.at;
  const { opens } = document.querySelector(".sd-learn [data-current]").dataset;
  const question = lesson === QUIZ ? document.querySelector(".sd-quiz").dataset.at : null;
  const shown = opens ? stageOfPage()?.recording : null; // what has no recording of its own shows that of another lesson
  const recording = opens && shown === JSON.parse(opens).recording ? null : shown; // the lesson brings its own
  const link = classLink(location.href, { lesson, question }, settingsOf(names, values), recording);
  const told = document.querySelector("[data-role=class-told]");
  try {
    await navigator.clipboard.writeText(link);
    told.textContent = linkedWords(stageOfPage());
  } catch {
    history.replaceState(history.state, "", link);
    told.textContent = "This browser does not allow copying. Copy the link from the address bar.";
  }
}

function linkedWords(stage) {
  const isRecording = !stage?.trace.start || stage.recording !== null;
  return isRecording ? "Link copied." : "Link copied. Students see a recording until they press Run.";
}
