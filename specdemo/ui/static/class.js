// The tab "Class": opens a class, shows the way in, and has the page's stage followed for as long as it lasts.

import { ClassGames } from "./class_games.js";
import { ClassQuestions } from "./class_questions.js";
import { Relay } from "./class_relay.js";
import { element, rolesOf, write } from "./dom.js";
import { forgetInTab, recallInTab, rememberInTab } from "./memory.js";
import { stageOfPage } from "./stage.js";
import { openTab, tabAtHand } from "./tabs.js";

const PATH = "../specdemo-class";
const KEY = "specdemo-teacher"; // a reload must not lose a class; its secret stays in this tab
const BEAT_MS = 200;
const IDLE_BEAT_MS = 500;
const PATIENCE_MS = 10_000;
const SURE_MS = 5000;
const LOCAL = ["localhost", "127.0.0.1", "[::1]"];
const SECRET = "X-Class-Secret";
const [OVER, OVERTAKEN] = [404, 409];
const REFUSED = [400, 413];

/** Called once by the Gradio component. */
export function mountClass({ element: host, base, settings }) {
  new ClassTab(host.querySelector(".sd-class"), base, settings.questions);
}

class ClassTab {
  constructor(root, base, questions) {
    this.root = root;
    this.base = base;
    this.roles = rolesOf(root);
    this.window = `${Date.now()} ${Math.random()}`; // of the teacher's windows the class hears one
    this.numbers = 0; // of what was said
    this.chip = this.makeChip();
    this.questions = new ClassQuestions(this.roles, questions, (message) => this.say(message));
    this.games = new ClassGames(this.roles, (message) => this.say(message), () => this.ask(this.at("game")));
    const { open, "copy-link": copy, end, "sum-up": sumUp, plan } = this.roles;
    plan.href = new URL("lesson-plan.html", base).href;
    const acts = [[open, () => this.open()], [copy, () => this.copy()], [end, () => this.end()], [sumUp, () => this.sumUp()]];
    for (const [button, act] of acts) button.addEventListener("click", () => this.try(act));
    document.addEventListener("sd-moment", () => this.later(0));
    root.dataset.ready = "true";
    const kept = recallInTab(KEY);
    if (kept) this.begin(kept);
  }

  async open() {
    this.begin(await this.ask(new URL(PATH, this.base), { address: new URL("..", this.base).href }));
  }

  begin(room) {
    this.room = room;
    rememberInTab(KEY, room);
    const { roles } = this;
    this.root.dataset.state = "open";
    roles.qr.src = room.qr;
    roles.code.textContent = room.code;
    roles.link.textContent = room.link;
    roles.local.hidden = !LOCAL.includes(new URL(room.link).hostname);
    this.relay = null;
    this.waiting = []; // what the teacher has said and the class has not heard
    this.isFirst = true;
    this.beaten = 0;
    this.showState({ students: 0, question: null, game: null });
    this.later(0);
  }

  // So that everybody finds the way in, whatever the projector shows.
  makeChip() {
    const chip = element("button", "sd-button sd-class-chip");
    chip.type = "button";
    chip.title = "the class: its code, and how many are there";
    chip.addEventListener("click", () => openTab("class"));
    return chip;
  }

  say(message) {
    this.tell("");
    this.numbers += 1;
    this.waiting.push({ ...message, number: this.numbers });
    this.later(0);
  }

  /** Tell the class what is new after so long, but not more often than a beat. */
  later(delay) {
    if (!this.room) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.beat(), Math.max(delay, this.beaten + BEAT_MS - performance.now()));
  }

  /** One post at a time: what the teacher has said, one by one, then what the stage shows. */
  async beat() {
    const stage = stageOfPage();
    const { room } = this;
    if (!room || this.sending) return;
    if (!stage) return this.later(BEAT_MS);
    this.beaten = performance.now();
    this.relay ??= new Relay(stage, placeOfPage);
    const [said] = this.waiting;
    const { messages, taken } = said ? { messages: [said], taken: () => this.waiting.shift() } : this.relay.news();
    this.sending = true;
    const told = await this.post(messages).catch((error) => ({ error }));
    this.sending = false;
    if (this.room !== room) return; // it has been ended meanwhile
    this.later(this.waiting.length || stage.player.playing || (stage.live && !stage.trace.closed) ? BEAT_MS : IDLE_BEAT_MS);
    if (told.error) return this.failed(told.error, said);
    this.isFirst = false;
    taken();
    this.showState(told);
  }

  async post(messages) {
    return this.ask(this.at("teach"), { window: this.window, first: this.isFirst, messages });
  }

  // Whatever is no refusal (a network that fails, a server that is busy) is tried again with the next beat.
  failed(error, said) {
    if (error.status === OVER) this.over("The class is over: nothing was heard of this page for too long, or the server has started again.");
    else if (error.status === OVERTAKEN && error.message.startsWith("Another window")) this.over(error.message, true);
    else if (error.status === OVERTAKEN) this.relay.tellAnew();
    else if (REFUSED.includes(error.status)) {
      if (said) this.waiting.shift();
      else this.relay.giveUp();
      this.tell(error.message);
    }
  }

  at(path) {
    return new URL(`${PATH}/${this.room.code}/${path}`, this.base);
  }

  /** Post `content`, or fetch where there is none; rejects with the server's sentence and `status`. */
  async ask(url, content) {
    const headers = this.room ? { [SECRET]: this.room.secret } : {};
    const asked = content ? { method: "POST", body: JSON.stringify(content), headers } : { headers };
    const response = await fetch(url, { ...asked, signal: AbortSignal.timeout(PATIENCE_MS) });
    if (response.ok) return response.headers.get("content-type").includes("json") ? response.json() : response.blob();
    const told = await response.json().catch(() => ({}));
    throw Object.assign(new Error(told.error ?? "The server could not be reached."), { status: response.status });
  }

  showState({ students, question, game }) {
    const there = students === 1 ? "1 student is here" : `${students} students are here`;
    write(this.roles.here, `${there}.`);
    if (!this.chip.isConnected) document.querySelector(".sd-tools")?.prepend(this.chip);
    write(this.chip, `Class ${this.room.code} · ${students}`);
    this.questions.show(question);
    this.games.show(game).catch((error) => this.tell(error.message));
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.room.link);
      this.tell("Link copied.");
    } catch {
      getSelection().selectAllChildren(this.roles.link); // browsers let pages copy under https only
      this.tell("This browser does not let the page copy; the link is selected, copy it from there.");
    }
  }

  async sumUp() {
    const summary = await this.ask(this.at("summary"));
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

  /** No class is open in this window any more; `elsewhere`: it is in another, and a reload takes it back. */
  over(words, elsewhere = false) {
    this.room = null;
    if (!elsewhere) forgetInTab(KEY);
    this.root.dataset.state = "none";
    this.chip.remove();
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
    this.roles.said.textContent = words;
  }
}

/** Which tab and lesson of the page are open. */
function placeOfPage() {
  return { tab: tabAtHand() ?? null, lesson: document.querySelector(".sd-learn")?.dataset.at ?? null };
}
