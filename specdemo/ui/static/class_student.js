// A student's page: joins the class in its address, shows what the teacher shows, and answers questions.

import { Asked } from "./class_asked.js";
import { Drafting } from "./class_draft.js";
import { ClassLine } from "./class_line.js";
import { TeachersView } from "./class_view.js";
import { onSubmit, rolesOf, write } from "./dom.js";
import { mountFollowing } from "./stage.js";

const TAB_WORDS = { play: "Play", proof: "Is it the same?", lab: "Lab", class: "Class" };
const LOST = "Connection lost; trying again…";

/** `home` is the address of the live page, `base` that of its files. */
export function mountStudent({ root, base, home, settings }) {
  const stage = mountFollowing({ root: root.querySelector(".sd"), base, settings });
  const page = new StudentPage(root, home, stage);
  const code = codeIn(location.pathname);
  if (code) page.join(code);
  else page.askForCode("");
}

/** The class code in the path of an address; null without one. */
function codeIn(path) {
  const code = path.match(/\/specdemo-class\/([^/]+)$/)?.[1];
  return code ? decodeURIComponent(code).trim().toUpperCase() : null;
}

class StudentPage {
  constructor(root, home, stage) {
    this.root = root;
    this.home = home;
    this.stage = stage;
    this.roles = rolesOf(root);
    this.disconnected = LOST;
    this.lessons = [...this.roles.lessons.querySelectorAll("[data-lesson]")];
    this.view = new TeachersView(stage, () => this.showState());
    this.asked = new Asked(this.roles.asked, (answer) => this.line.send("answer", answer));
    this.drafting = new Drafting(this.roles.game, {
      send: (draft) => this.line.send("draft", draft),
      ownVerdict: () => this.line.ownVerdict(),
    });
    this.roles.back.addEventListener("click", () => {
      this.view.follow();
      this.showState();
    });
    onSubmit(this.roles.join, () => location.assign(this.address(this.roles.join.elements.code.value.trim())));
  }

  address(code) {
    return new URL(`specdemo-class/${encodeURIComponent(code)}`, this.home);
  }

  askForCode(refusal) {
    this.root.dataset.state = "unknown";
    this.roles.join.hidden = false;
    this.roles.refused.textContent = refusal;
    this.roles.where.textContent = "";
  }

  async join(code) {
    this.roles.code.textContent = `· class ${code}`;
    this.line = new ClassLine(this.address(code), {
      onMessage: (message) => this.take(message),
      onState: (connected) => this.showState(connected),
    });
    try {
      await this.line.open();
    } catch (error) {
      this.askForCode(error.message);
    }
  }

  take(message) {
    const { stage, view, asked, drafting } = this;
    if (message.type === "begin") {
      view.begin();
      stage.topic.expect(message.topic);
      stage.beginOf(message.recording);
    } else if (message.type === "given") {
      asked.given = message.given;
      drafting.recall(message);
    } else if (message.type === "events") stage.takeMore(message.events);
    else if (message.type === "view") this.show(message);
    else if (message.type === "question") asked.show(message.question);
    else if (message.type === "game") drafting.show(message.game);
    else if (message.type === "refused") this.disconnected = message.error; // shown while the line tries again
    else if (message.type === "end") this.end();
  }

  show(message) {
    const lesson = message.tab === "learn" && message.lesson !== "quiz" ? message.lesson : null; // a quiz question is asked above
    this.roles.lessons.hidden = lesson === null;
    for (const page of this.lessons) page.toggleAttribute("data-current", page.dataset.lesson === lesson);
    this.tab = message.tab;
    this.view.take(message);
    this.showState();
  }

  showState(connected = this.connected) {
    this.connected = connected;
    if (this.root.dataset.state === "over") return;
    const { follows } = this.view;
    this.root.dataset.state = connected ? (follows ? "following" : "apart") : "away";
    this.roles.back.hidden = follows;
    if (connected) this.disconnected = LOST;
    write(this.roles.where, connected ? stateWords(follows, this.tab) : this.disconnected);
  }

  end() {
    this.root.dataset.state = "over";
    this.roles.where.textContent = "The class is over. The last run stays until you close the page.";
    this.asked.show(null);
    this.drafting.show(null);
    this.view.leave();
    this.roles.back.hidden = true;
  }
}

function stateWords(follows, tab) {
  if (!follows) return "You are looking around on your own.";
  return tab in TAB_WORDS ? `Your teacher is on the tab “${TAB_WORDS[tab]}”; look at the projector.` : "You are following your teacher.";
}
