// The tab "Class": opens a class, shows the way in, and has the page's stage followed for as long as it lasts.

import { ClassGames } from "./class_games.js";
import { ClassQuestions } from "./class_questions.js";
import { Relay } from "./class_relay.js";
import { element, rolesOf } from "./dom.js";
import { stageOfPage } from "./stage.js";
import { openTab, tabAtHand } from "./tabs.js";

const PATH = "../specdemo-class";
const KEPT = "specdemo-teacher";
const BEAT_MS = 200;
const IDLE_BEAT_MS = 500;
const SURE_MS = 5000;
const LOCAL = ["localhost", "127.0.0.1", "[::1]"];
const SECRET = "X-Class-Secret";

/** Called once by the Gradio component. */
export function mountClass({ element: host, base, settings }) {
  new ClassTab(host.querySelector(".sd-class"), base, settings.questions);
}

class ClassTab {
  constructor(root, base, questions) {
    this.root = root;
    this.base = base;
    this.roles = rolesOf(root);
    this.waiting = []; // messages of the questions, on their way with the next beat
    const { open, "copy-link": copy, end, "sum-up": sumUp } = this.roles;
    this.roles.plan.href = new URL("lesson-plan.html", base).href;
    open.addEventListener("click", () => this.try(() => this.open()));
    copy.addEventListener("click", () => this.try(() => this.copy()));
    end.addEventListener("click", () => this.try(() => this.end()));
    sumUp.addEventListener("click", () => this.try(() => this.sumUp()));
    this.games = new ClassGames(this.roles, (message) => this.say(message), () => this.ask(this.at("game")));
    document.addEventListener("sd-moment", () => this.beat());
    this.questions = new ClassQuestions(this.roles, questions, (message) => this.say(message));
    root.dataset.ready = "true";
    const kept = recallRoom();
    if (kept) this.begin(kept);
  }

  async open() {
    const room = await this.ask(new URL(PATH, this.base), { address: new URL("..", this.base).href });
    this.begin(room);
  }

  begin(room) {
    this.room = room;
    keepRoom(room);
    const { roles } = this;
    this.root.dataset.state = "open";
    roles.qr.src = room.qr;
    roles.code.textContent = room.code;
    roles.link.textContent = room.link;
    roles.local.hidden = !LOCAL.includes(new URL(room.link).hostname);
    this.chip ??= this.makeChip();
    this.relay = null;
    this.showState({ students: 0, question: null, game: null });
    this.later(0);
  }

  // So that everybody finds the way in, whatever the projector shows.
  makeChip() {
    const chip = element("button", "sd-button sd-class-chip");
    chip.type = "button";
    chip.title = "the class: its code, and how many are there";
    chip.addEventListener("click", () => openTab("class"));
    document.querySelector(".sd-tools")?.prepend(chip);
    return chip;
  }

  say(message) {
    this.waiting.push(message);
    this.beat();
  }

  later(delay) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.beat(), delay);
  }

  /** Tell the class what is new; one post at a time. */
  async beat() {
    const stage = stageOfPage();
    if (!this.room || this.sending) return;
    if (!stage) return this.later(BEAT_MS);
    this.relay ??= new Relay(stage, placeOfPage);
    const { messages, taken } = this.relay.news();
    const said = this.waiting.splice(0);
    this.sending = true;
    const told = await this.ask(this.at("teach"), { messages: [...messages, ...said] }).catch((error) => ({ error }));
    this.sending = false;
    if (!this.room) return; // it has been ended meanwhile
    if (told.error) this.failed(told.error, said, taken);
    else {
      taken();
      this.showState(told);
    }
    this.later(stage.player.playing || (stage.live && !stage.trace.closed) ? BEAT_MS : IDLE_BEAT_MS);
  }

  failed(error, said, taken) {
    if (error.status === 404) this.over("The class is over: nothing was heard of this page for too long, or the server has started again.");
    else if (error.status) {
      taken(); // what is refused once is refused again
      this.tell(error.message);
    } else this.waiting.unshift(...said); // not reached: again with the next beat
  }

  at(path) {
    return new URL(`${PATH}/${this.room.code}/${path}`, this.base);
  }

  /** Post `content`, or fetch where there is none; rejects with the server's sentence and `status`. */
  async ask(url, content) {
    const headers = this.room ? { [SECRET]: this.room.secret } : {};
    const asked = content ? { method: "POST", body: JSON.stringify(content), headers } : { headers };
    const response = await fetch(url, asked);
    if (response.ok) return response.headers.get("content-type").includes("json") ? response.json() : response.blob();
    const told = await response.json().catch(() => ({}));
    throw Object.assign(new Error(told.error ?? "The server could not be reached."), { status: response.status });
  }

  showState({ students, question, game }) {
    const there = students === 1 ? "1 student is here" : `${students} students are here`;
    this.roles.here.textContent = `${there}.`;
    this.chip.textContent = `Class ${this.room.code} · ${students}`;
    this.questions.show(question);
    this.games.show(game).catch((error) => this.tell(error.message));
  }

  async copy() {
    await navigator.clipboard.writeText(this.room.link);
    this.tell("Link copied.");
  }

  async sumUp() {
    const summary = await this.ask(new URL(`${this.at("summary")}`));
    this.questions.sumUp(summary, () => this.ask(new URL(`${this.at("summary")}?as=csv`)));
  }

  // Pressed once it asks; a class is not ended by a slip.
  async end() {
    const { end } = this.roles;
    if (!end.dataset.sure) {
      end.dataset.sure = "true";
      end.textContent = "Press again: it ends for everybody";
      setTimeout(() => this.keepOpen(), SURE_MS);
      return;
    }
    this.keepOpen();
    await this.ask(this.at("end"), {});
    this.over("The class is over.");
  }

  keepOpen() {
    const { end } = this.roles;
    delete end.dataset.sure;
    end.textContent = "End the class";
  }

  over(words) {
    this.room = null;
    forgetRoom();
    this.root.dataset.state = "none";
    this.chip.remove();
    this.chip = null;
    this.questions.clear();
    this.games.clear();
    this.tell(words);
  }

  async try(act) {
    this.tell("");
    try {
      await act();
    } catch (error) {
      this.tell(error.message);
    }
  }

  tell(words) {
    this.roles.told.textContent = words;
  }
}

/** Which tab and lesson of the page are open. */
function placeOfPage() {
  return { tab: tabAtHand() ?? null, lesson: document.querySelector(".sd-learn")?.dataset.at ?? null };
}

// A reload must not lose a class. The secret stays in this tab.
function recallRoom() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

function keepRoom(room) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(room));
  } catch {
    // See recallRoom.
  }
}

function forgetRoom() {
  try {
    sessionStorage.removeItem(KEPT);
  } catch {
    // See recallRoom.
  }
}
