// The tab "Class": opens a class, shows how to join it, shares the stage, and asks questions and starts games.

import { Relay } from "./class_relay.js";
import { ClassQuestions } from "./class_questions.js";
import { absentWords, gameResults } from "./class_results.js";
import { button, comeIntoView, element, forgetInTab, onSubmit, recallInTab, rememberInTab, replaceParts, rolesOf, write } from "../common/dom.js";
import { CLASS_KEY, currentTab, openTab } from "../common/page.js";
import { counted } from "../common/words.js";
import { PREDICTIONS } from "../stage/prediction.js";
import { stageOfPage } from "../stage/stage.js";

const PATH = "../specdemo-class";
const SHORT_PATH = "../class"; // for students
// The storage key under which this browser tab keeps the class and its secret, so that a reload does not end the class.
const POST_MS = 200;
const IDLE_POST_MS = 500;
const TIMEOUT_MS = 10_000;
const LOST_MS = 7000; // without a reply for so long, the chip says that the connection is lost
const CONFIRM_MS = 5000;
const LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0", "[::]"];
const SECRET = "X-Class-Secret";
const [NOT_FOUND, RUN_UNKNOWN, ELSEWHERE] = [404, 409, 423];
const REFUSED = [400, 413];

/** Called once by the Gradio component. */
export function mountClass({ element: host, base, settings }) {
  new ClassTab(host.querySelector(".sd-class"), base, settings);
}

class ClassTab {
  constructor(root, base, { questions: quiz, openings, defaults }) {
    this.root = root;
    this.base = base;
    this.roles = rolesOf(root);
    this.window = `${Date.now()} ${Math.random()}`; // an id: the class follows only one window of the teacher
    this.numbers = 0; // the number of messages sent
    // This button leads back to the class code from any tab.
    this.chip = button("sd-button sd-class-chip", "", () => {
      openTab("class");
      if (!this.room) this.chip.remove();
    });
    this.chip.title = "Class code and number of students";
    const prepared = [
      ...PREDICTIONS.map((question) => ({ ...question, label: `Your next run: ${question.text}` })),
      ...quiz.map((question, index) => ({ ...question, label: `Quiz question ${index + 1}: ${question.text}`, isOfQuiz: true })),
    ];
    this.questions = new ClassQuestions(this.roles, prepared, defaults, (message) => this.send(message));
    this.games = new ClassGames(this.roles, openings, (message) => this.send(message), () => this.fetch(this.at("game")));
    for (const role of ["plan", "plan-again"]) this.roles[role].href = new URL("class/lesson-plan.html", base).href;
    this.page = new URL("..", base); // the address of the live page, to which the class's link belongs
    this.joinScreen = new JoinScreen(this.roles);
    this.reached = this.findAddress().catch(() => {}).then(() => this.showReach());
    // A sentence stays until the teacher presses a button; messages that the page sends by itself leave it.
    root.addEventListener("click", ({ target }) => target.closest("button") && write(this.roles.said, ""), true);
    this.onClick("open", () => this.open());
    const { "join-form": join } = this.roles;
    onSubmit(join, () => location.assign(new URL(`${SHORT_PATH}/${encodeURIComponent(join.elements.code.value)}`, base)));
    this.onClick("copy-link", () => this.copyLink());
    this.onClick("end", () => this.end());
    this.onClick("sum-up", () => this.showSummary());
    document.addEventListener("sd-moment", () => this.schedule(0));
    root.dataset.ready = "true";
    const kept = recallInTab(CLASS_KEY);
    if (kept) this.begin(kept);
  }

  // On the server's computer, the teacher's page may have an address that no phone can open.
  async findAddress() {
    if (!this.isLocal) return;
    const { addresses } = await this.fetch(new URL(`${PATH}/addresses`, this.base));
    const [first, ...others] = addresses.map((address) => new URL(this.page.pathname, address));
    if (!first) return;
    this.page = first;
    this.roles["reach-others"].hidden = !others.length;
    this.roles["reach-list"].textContent = others.map(({ href }) => href).join(", ");
  }

  get isLocal() {
    return LOCAL_HOSTS.includes(this.page.hostname);
  }

  showReach() {
    this.roles["reach-address"].textContent = shortAddress(new URL(`${SHORT_PATH.replace("../", "")}/`, this.page).href);
    for (const role of ["reach-local", "local", "join-local"]) this.roles[role].hidden = !this.isLocal;
    this.roles.reach.hidden = this.isLocal;
  }

  onClick(role, act) {
    this.roles[role].addEventListener("click", () => act().catch((error) => write(this.roles.said, error.message)));
  }

  async open() {
    await this.reached;
    this.begin(await this.fetch(new URL(PATH, this.base), { address: this.page.href }));
  }

  begin(room) {
    this.room = room;
    rememberInTab(CLASS_KEY, room);
    const { roles } = this;
    this.root.dataset.state = "open";
    document.body.toggleAttribute("data-class", true);
    roles.qr.src = room.qr;
    roles.code.textContent = room.code;
    roles.link.textContent = room.link;
    roles.address.textContent = shortAddress(room.link);
    this.joinScreen.fill(room);
    this.relay = null;
    this.questions.measurement = null; // that of an earlier class
    this.waiting = []; // messages of the teacher that have not reached the server yet
    this.isFirst = true;
    this.postedAt = 0;
    this.watchReplies();
    this.showClass({ students: 0, question: null, game: null, writing: null, measurement: null });
    this.schedule(0);
  }

  send(message) {
    this.numbers += 1;
    this.waiting.push({ ...message, number: this.numbers });
    this.schedule(0);
  }

  /** Post after `delay`, but at most once per `POST_MS`. */
  schedule(delay) {
    if (!this.room) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.post(), Math.max(delay, this.postedAt + POST_MS - performance.now()));
  }

  /** One post at a time: first the teacher's messages one by one, then what the stage shows. */
  async post() {
    const stage = stageOfPage();
    const { room } = this;
    if (!room || this.isPosting) return;
    if (!stage) return this.schedule(POST_MS);
    this.postedAt = performance.now();
    this.relay ??= new Relay(stage, placeOfPage);
    const [message] = this.waiting;
    const { messages, taken } = message ? { messages: [message], taken: () => this.waiting.shift() } : this.relay.news();
    this.isPosting = true;
    const content = { window: this.window, first: this.isFirst, messages, seen: this.questions.seen };
    const reply = await this.fetch(this.at("teach"), content).catch((error) => ({ error }));
    this.isPosting = false;
    if (this.room !== room) return; // the class has ended in the meantime
    const isMoving = stage.player.playing || stage.shown.isArriving || reply.question?.phase === "measuring";
    this.schedule(this.waiting.length || isMoving ? POST_MS : IDLE_POST_MS);
    if (reply.error) return this.failed(reply.error, message);
    this.isFirst = false;
    this.watchReplies();
    taken();
    this.showClass(reply);
  }

  // The chip is on every tab, so the teacher sees there that students get no news.
  watchReplies() {
    clearTimeout(this.silent);
    this.silent = setTimeout(() => write(this.chip, `Class ${this.room.code} · no connection`), LOST_MS);
  }

  // Handles refusals only. After a network failure, or if the server is busy, the next post tries again.
  failed(error, message) {
    if (error.status === NOT_FOUND) this.close("The class has ended, because the server restarted or this page was offline for too long. Start a new class.");
    else if (error.status === ELSEWHERE) this.close(error.message, true);
    else if (error.status === RUN_UNKNOWN) this.relay.restart();
    else if (REFUSED.includes(error.status)) {
      if (message) this.waiting.shift();
      else this.relay.giveUp();
      write(this.roles.said, error.message);
    }
  }

  at(path) {
    return new URL(`${PATH}/${this.room.code}/${path}`, this.base);
  }

  /**
   * Send a POST request with `content`, or a GET request without it. Rejects with the server's sentence and `status`.
   */
  async fetch(url, content) {
    const headers = this.room ? { [SECRET]: this.room.secret } : {};
    const request = content ? { method: "POST", body: JSON.stringify(content), headers } : { headers };
    const response = await fetch(url, { ...request, signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.ok) return response.headers.get("content-type").includes("json") ? response.json() : response.blob();
    const { error = "The server could not be reached; try again." } = await response.json().catch(() => ({}));
    throw Object.assign(new Error(error), { status: response.status });
  }

  showClass({ students, question, game, writing, measurement }) {
    if (measurement) this.questions.follow(measurement);
    const here = `${counted(students, "student is", "students are")} here.`;
    for (const node of [this.roles.here, this.roles["join-here"]]) write(node, here);
    if (!this.chip.isConnected) document.querySelector(".sd-tools")?.prepend(this.chip);
    write(this.chip, `Class ${this.room.code} · ${students}`);
    this.questions.show(question, students);
    this.games.show(game, writing).catch((error) => write(this.roles.said, error.message));
  }

  async copyLink() {
    try {
      await navigator.clipboard.writeText(this.room.link);
      write(this.roles.said, "Link copied.");
    } catch {
      getSelection().selectAllChildren(this.roles.link); // browsers allow copying under https only
      write(this.roles.said, "This browser does not allow copying. Press Ctrl+C to copy the selected link.");
    }
  }

  async showSummary() {
    const summary = await this.fetch(this.at("summary"));
    this.questions.showSummary(summary, () => this.fetch(new URL(`${this.at("summary")}?as=csv`)));
  }

  // The first press only asks for a second one.
  async end() {
    const { end } = this.roles;
    const isSure = end.dataset.sure;
    this.setSure(!isSure);
    if (!isSure) return setTimeout(() => this.setSure(false), CONFIRM_MS);
    await this.fetch(this.at("end"), {});
    this.close("The class has ended.");
  }

  setSure(isSure) {
    const { end } = this.roles;
    if (isSure) end.dataset.sure = "true";
    else delete end.dataset.sure;
    end.textContent = isSure ? "Confirm ending the class" : "End the class";
  }

  /**
   * Show that this window has no open class. `elsewhere`: the class moved to another window; a reload moves it back.
   */
  close(words, elsewhere = false) {
    this.room = null;
    clearTimeout(this.silent);
    if (!elsewhere) forgetInTab(CLASS_KEY);
    this.root.dataset.state = "none";
    document.body.toggleAttribute("data-class", false);
    if (currentTab() === "class") this.chip.remove();
    else write(this.chip, "The class has ended"); // leads to the sentence below
    this.joinScreen.close();
    this.questions.show(null);
    this.roles.summary.hidden = true;
    this.games.show(null, null);
    write(this.roles.said, words);
  }
}

/** The tab and the lesson that are open on the page. */
function placeOfPage() {
  return { tab: currentTab() ?? null, lesson: document.querySelector(".sd-learn")?.dataset.at ?? null };
}

/** How to join the class, over the full screen: the QR code, the address to type, and the code. */
class JoinScreen {
  constructor(roles) {
    this.roles = roles;
    roles["join-open"].addEventListener("click", () => this.open());
    roles["join-close"].addEventListener("click", () => this.close());
    roles["join-screen"].addEventListener("close", () => document.fullscreenElement && document.exitFullscreen());
    document.addEventListener("fullscreenchange", () => document.fullscreenElement || this.close());
  }

  fill({ qr, link, code }) {
    this.roles["join-qr"].src = qr;
    this.roles["join-code"].textContent = code;
    this.roles["join-address"].textContent = shortAddress(link);
  }

  open() {
    this.roles["join-screen"].showModal();
    // A browser may refuse, for example within a frame; the screen then fills the window.
    document.documentElement.requestFullscreen?.().catch(() => {});
  }

  close() {
    this.roles["join-screen"].close();
  }
}

/** The part of a class's link that a student types to get to the form for the code. */
function shortAddress(link) {
  return link
    .replace(/^https?:\/\//, "")
    .replace(/\/[^/]*$/, "")
    .replaceAll("-", "-\u2060"); // no line ends after a hyphen
}

const MAX_SHOWN = 300; // characters of a game's text, so that the window has room for its end
const MAX_SHOWN_LINES = 8;
const TICK_MS = 200;
const PHASE_WORDS = { open: "Students are writing the next words.", judging: "Time is up. The target is verifying the drafts…" };

class ClassGames {
  /**
   * `openings`: example texts, each with `label` and `text`. `send` posts a message to the class; `fetchGame()` resolves
   * to the game in the form that students get.
   */
  constructor({ "game-form": form, "ask-form": askForm, game, opening }, openings, send, fetchGame) {
    this.form = form;
    this.askForm = askForm;
    this.nextForm = null; // the form to show when the game has been dismissed
    this.root = game;
    this.send = send;
    this.fetchGame = fetchGame;
    this.shown = "";
    opening.append(...openings.map(({ label, text }) => new Option(label, text)));
    opening.addEventListener("change", () => (form.elements.text.value = opening.value));
    onSubmit(form, () => {
      const { text, seconds, drafts } = form.elements;
      send({ type: "play", text: text.value, seconds: Number(seconds.value), open_drafts: drafts.checked });
    });
  }

  /**
   * Show `game`, with the server's count of drafts, and the time that is `left` for `writing`. Both are null if there is
   * no game.
   */
  async show(game, writing) {
    this.end = writing && performance.now() + 1000 * writing.left;
    this.root.hidden = !game;
    this.form.hidden = Boolean(game);
    if (!game && this.nextForm) {
      comeIntoView(this.nextForm);
      this.nextForm = null;
    }
    const phase = game ? `${game.number} ${game.phase}` : "";
    if (phase !== this.shown) {
      this.shown = phase;
      const content = game && (await this.fetchGame().catch(() => null));
      if (this.shown !== phase) return; // another phase has begun in the meantime
      if (game && !content) this.shown = ""; // so that the next post tries again
      else if (game) this.rebuild(content);
    }
    if (!game || !this.count) return;
    const words = counted(game.count, "draft");
    write(this.count, words + absentWords(game.absent));
    this.tick();
  }

  tick() {
    const left = this.end && Math.max(0, Math.ceil((this.end - performance.now()) / 1000));
    write(this.clock, this.end ? `${left} s` : "");
  }

  rebuild({ phase, error, text, results }) {
    this.count = element("b", "");
    this.clock = element("b", "sd-game-clock");
    clearInterval(this.timer);
    if (phase === "open") this.timer = setInterval(() => this.tick(), TICK_MS);
    const dismiss = (words, form) => button("sd-button", words, () => {
      this.nextForm = form;
      this.send({ type: "dismiss-game" });
    });
    const isOver = phase === "judged" || phase === "failed";
    const ways = isOver ? [dismiss("New game", this.form), " ", dismiss("Ask a question", this.askForm)] : [dismiss("Cancel the game", this.form)];
    const buttons = element("p", "sd-class-buttons", ...ways);
    const title = element("h2", "", "The class as the draft model");
    const body = phase === "judged" ? gameResults(results, null) : element("p", "", error ?? PHASE_WORDS[phase]);
    const state = element("p", "sd-game-count", this.count, this.clock);
    const opening = element("p", "sd-game-opening", endOf(text));
    replaceParts(this.root, title, ...(isOver ? [buttons, state, opening, body] : [state, opening, body, buttons]));
    comeIntoView(this.root);
  }
}

// Students continue the end of the text; their own devices show all of it.
function endOf(text) {
  const lines = text.split("\n").slice(-MAX_SHOWN_LINES).join("\n");
  const end = [...lines].slice(-MAX_SHOWN).join("");
  return end.length < text.length ? `…${end}` : text;
}
