// A student's page: joins the class its address names, shows what the teacher shows, and answers what is asked.

import { Asked } from "./class_asked.js";
import { Drafting } from "./class_draft.js";
import { ClassLine } from "./class_line.js";
import { TeachersView } from "./class_view.js";
import { rolesOf, write } from "./dom.js";
import { mountFollowing } from "./stage.js";

const TAB_WORDS = { play: "Play", proof: "Is it the same?", lab: "Lab", class: "Class" };
const LOST = "The connection is lost; trying again…";

/** `home` is the address of the live page, `base` that of its files. */
export function mountStudent({ root, base, home, settings }) {
  const stage = mountFollowing({ root: root.querySelector(".sd"), base, settings });
  const page = new StudentPage(root, home, stage);
  const code = codeIn(location.pathname);
  if (code) page.join(code);
  else page.askForCode("");
}

/** The class's code in the path of an address; null where it names none. */
export function codeIn(path) {
  const named = path.match(/\/specdemo-class\/([^/]+)$/)?.[1];
  return named ? decodeURIComponent(named).trim().toUpperCase() : null;
}

class StudentPage {
  constructor(root, home, stage) {
    this.root = root;
    this.home = home;
    this.stage = stage;
    this.roles = rolesOf(root);
    this.lost = LOST; // what is said while there is no line
    this.lessons = [...this.roles.lessons.querySelectorAll("[data-lesson]")];
    this.view = new TeachersView(stage, { onLeave: () => this.showWhere() });
    this.asked = new Asked(this.roles.asked, (answer) => this.line.answer(answer));
    this.drafting = new Drafting(this.roles.game, { send: (draft) => this.line.draft(draft), ownVerdict: () => this.line.ownVerdict() });
    this.roles.back.addEventListener("click", () => this.comeBack());
    this.roles.join.addEventListener("submit", (event) => {
      event.preventDefault();
      const code = new FormData(this.roles.join).get("code").trim();
      location.assign(new URL(`specdemo-class/${encodeURIComponent(code)}`, this.home));
    });
  }

  askForCode(refusal) {
    this.root.dataset.state = "unknown";
    this.roles.join.hidden = false;
    this.roles.refused.textContent = refusal;
    this.roles.where.textContent = "";
  }

  async join(code) {
    this.roles.code.textContent = `· class ${code}`;
    this.line = new ClassLine(new URL(`specdemo-class/${encodeURIComponent(code)}`, this.home), {
      onMessage: (message) => this.take(message),
      onState: (connected) => this.showWhere(connected),
    });
    try {
      await this.line.open();
    } catch (error) {
      this.askForCode(error.message);
    }
  }

  take(message) {
    const { stage, view } = this;
    if (message.type === "begin") {
      view.begin(); // what one looked at is gone
      stage.topic.expect(message.topic);
      stage.beginOf(message.recording);
    } else if (message.type === "events") stage.takeMore(message.events);
    else if (message.type === "view") this.show(message);
    else if (message.type === "given") {
      this.asked.recall(message.given);
      this.drafting.recall(message);
    }
    else if (message.type === "question") this.asked.show(message.question);
    else if (message.type === "game") this.drafting.show(message.game);
    else if (message.type === "refused") this.refused(message.error);
    else if (message.type === "end") this.end();
  }

  show(message) {
    const lesson = message.tab === "learn" && message.lesson !== "quiz" ? message.lesson : null; // that one is answered here
    this.roles.lessons.hidden = lesson === null;
    for (const page of this.lessons) page.toggleAttribute("data-current", page.dataset.lesson === lesson);
    this.tab = message.tab;
    this.view.take(message);
    this.showWhere();
  }

  // The class is full, or this page is open too often; the line tries again by itself.
  refused(sentence) {
    this.lost = sentence;
  }

  comeBack() {
    this.view.come();
    this.showWhere();
  }

  showWhere(connected = this.connected) {
    this.connected = connected;
    if (this.root.dataset.state === "over") return;
    const { view } = this;
    this.root.dataset.state = connected ? (view.follows ? "following" : "apart") : "away";
    this.roles.back.hidden = view.follows;
    if (connected) this.lost = LOST;
    const words = connected ? whereWords(view.follows, this.tab) : this.lost;
    write(this.roles.where, words);
  }

  end() {
    this.root.dataset.state = "over";
    this.roles.back.hidden = true;
    this.roles.where.textContent = "The class is over. What was shown stays until you close the page.";
    this.asked.show(null);
    this.drafting.show(null);
    this.view.leave();
    this.roles.back.hidden = true;
  }
}

function whereWords(follows, tab) {
  if (!follows) return "You look around by yourself.";
  return tab in TAB_WORDS ? `Your teacher is at “${TAB_WORDS[tab]}”; look at the projector.` : "You see what your teacher shows.";
}
