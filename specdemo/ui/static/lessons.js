// The lessons: one page at a time, each with buttons that have the stage show a recording or a run. The last is
// the quiz, which has a place of its own (quiz.js).

import { element } from "./dom.js";
import { Tasks } from "./lesson_tasks.js";
import { recall, remember } from "./memory.js";
import { stageOfPage } from "./stage.js";

const SEEN_KEY = "specdemo-lessons";
const DONE_KEY = "specdemo-tasks";
const QUIZ = "quiz";

/** Called once by the Gradio component. */
export function mountLessons({ element: host, trigger }) {
  const root = host.querySelector(".sd-learn");
  const lessons = new Lessons(root, (address) => trigger("submit", { address }));
  root.querySelector("[data-role=class-link]").addEventListener("click", () => trigger("copy"));
  lessons.followRuns(document.querySelector("#stop"));
}

class Lessons {
  constructor(root, run) {
    this.root = root;
    this.pages = [...root.querySelectorAll("[data-lesson]")];
    this.names = this.pages.map((page) => page.dataset.lesson);
    this.seen = new Set(recallNames(SEEN_KEY));
    this.tasks = new Tasks(recallNames(DONE_KEY));
    this.dots = this.pages.map((page, index) => this.dot(page, index));
    for (const button of root.querySelectorAll("[data-go]")) {
      const way = button.dataset.go === "next" ? 1 : -1;
      button.addEventListener("click", () => this.go(this.current + way));
    }
    for (const button of root.querySelectorAll("[data-show]")) {
      button.addEventListener("click", () => stageOfPage().present(JSON.parse(button.dataset.show), topicOf(button)));
    }
    for (const button of root.querySelectorAll("[data-run]")) {
      button.addEventListener("click", () => {
        stageOfPage().topic.expect(topicOf(button));
        run(button.dataset.run);
      });
    }
    document.addEventListener("sd-moment", ({ detail }) => this.follow(detail));
    document.addEventListener("sd-question", () => this.go(this.names.indexOf(QUIZ)));
    this.tickTasks();
    this.go(lessonIn(location.search, this.names), false);
  }

  /** While a run can be stopped, offer that in place of starting one; `stop` is the page's own button. */
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

  // What is done on the stage may be what the lesson asks for.
  follow(moment) {
    if (!this.root.checkVisibility() || !this.tasks.take(this.names[this.current], moment)) return;
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
    const isQuiz = page.dataset.lesson === QUIZ;
    const button = element("button", "sd-dot", isQuiz ? "Quiz" : String(index + 1));
    button.type = "button";
    button.title = page.querySelector("h2").textContent;
    button.setAttribute("aria-label", isQuiz ? button.title : `Lesson ${index + 1}: ${button.title}`);
    button.addEventListener("click", () => this.go(index));
    this.root.querySelector("[data-role=lesson-dots]").append(element("li", "", button));
    return button;
  }

  go(index, byVisitor = true) {
    if (index < 0 || index >= this.pages.length) return;
    this.current = index;
    const name = this.names[index];
    this.root.dataset.at = name;
    this.pages.forEach((page, at) => page.toggleAttribute("data-current", at === index));
    this.root.querySelector("[data-role=class-told]").textContent = "";
    if (byVisitor) {
      this.seen.add(name);
      remember(SEEN_KEY, [...this.seen].join());
      noteInAddress(name);
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

// A lesson has a topic; a button may narrow it.
function topicOf(button) {
  const { topic } = button.closest("[data-lesson]").dataset;
  return { ...JSON.parse(topic), ...JSON.parse(button.dataset.topic ?? "{}") };
}

function recallNames(key) {
  return (recall(key) ?? "").split(",").filter(Boolean);
}

/** Which of the lessons of these names an address asks for, from 0; the first where it asks for none. */
export function lessonIn(search, names) {
  return Math.max(0, names.indexOf(new URLSearchParams(search).get("lesson")));
}

// So that the address at hand is always a link to what is read.
function noteInAddress(name) {
  const url = new URL(location.href);
  url.searchParams.set("lesson", name);
  url.searchParams.delete("question");
  history.replaceState(history.state, "", url);
}
