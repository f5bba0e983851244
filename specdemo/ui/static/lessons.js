// The lessons: one page at a time, each with buttons that have the stage show a recording or a run.

import { element } from "./dom.js";
import { recall, remember } from "./memory.js";
import { stageOfPage } from "./stage.js";

const LESSONS_SEEN_KEY = "specdemo-lessons";

/** Called once by the Gradio component. */
export function mountLessons({ element: host, trigger }) {
  const lessons = new Lessons(host.querySelector(".sd-learn"), (address) => trigger("submit", { address }));
  lessons.followRuns(document.querySelector("#stop"));
}

class Lessons {
  constructor(root, run) {
    this.root = root;
    this.pages = [...root.querySelectorAll("[data-lesson]")];
    this.seen = new Set((recall(LESSONS_SEEN_KEY) ?? "").split(",").filter(Boolean));
    this.dots = this.pages.map((page, index) => this.dot(page, index));
    for (const button of root.querySelectorAll("[data-go]")) {
      const way = button.dataset.go === "next" ? 1 : -1;
      button.addEventListener("click", () => this.go(this.current + way));
    }
    for (const button of root.querySelectorAll("[data-show]")) {
      button.addEventListener("click", () => stageOfPage().present(JSON.parse(button.dataset.show)));
    }
    for (const button of root.querySelectorAll("[data-run]")) {
      button.addEventListener("click", () => run(button.dataset.run));
    }
    this.go(lessonIn(location.search, this.pages.length), false);
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

  dot(page, index) {
    const button = element("button", "sd-dot", String(index + 1));
    button.type = "button";
    button.title = page.querySelector("h2").textContent;
    button.setAttribute("aria-label", `Lesson ${index + 1}: ${button.title}`);
    button.addEventListener("click", () => this.go(index));
    this.root.querySelector("[data-role=lesson-dots]").append(element("li", "", button));
    return button;
  }

  go(index, byVisitor = true) {
    if (index < 0 || index >= this.pages.length) return;
    this.current = index;
    this.pages.forEach((page, at) => page.toggleAttribute("data-current", at === index));
    if (byVisitor) {
      this.seen.add(String(index + 1));
      remember(LESSONS_SEEN_KEY, [...this.seen].join());
      noteInAddress(index + 1);
    }
    this.dots.forEach((dot, at) => {
      if (at === index) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
      dot.toggleAttribute("data-seen", this.seen.has(String(at + 1)));
    });
    this.root.querySelector("[data-go=back]").disabled = index === 0;
    this.root.querySelector("[data-go=next]").disabled = index === this.pages.length - 1;
  }
}

/** Which lesson an address names, from 0. */
export function lessonIn(search, count) {
  const named = Number(new URLSearchParams(search).get("lesson"));
  return Number.isInteger(named) && named >= 1 && named <= count ? named - 1 : 0;
}

// So that the address at hand is always a link to what is read.
function noteInAddress(number) {
  const url = new URL(location.href);
  url.searchParams.set("lesson", number);
  history.replaceState(history.state, "", url);
}
