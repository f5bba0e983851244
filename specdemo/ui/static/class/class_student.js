// A student's page: joins a class, shows what the teacher shows, answers questions and writes drafts.

import { ClassConnection } from "./class_connection.js";
import { TeachersView } from "./class_relay.js";
import { answerList, answerWords, gameResults, numberIn, resultWords } from "./class_results.js";
import { button, comeIntoView, element, onSubmit, recallInTab, rememberInTab, replaceParts, rolesOf, write } from "../common/dom.js";
import { tables } from "../common/tables.js";
import { LETTERS } from "../learn/quiz_cards.js";
import { showLiveLink } from "../stage/live_link.js";
import { linkTo } from "../stage/share.js";
import { mountFollowing } from "../stage/stage.js";

const FOLLOWED_TABS = ["run", "learn"]; // the tabs of the teacher that a student's page also has
const OVER = ["closed", "revealed", "judged", "failed"]; // a question or game that leaves the room to what the teacher shows
const LOST = "Connection lost. Connecting again…";

/** `home` is the address of the live page, and `base` the address of its static files. */
export function mountStudent({ root, base, home, settings }) {
  const stage = mountFollowing({ root: root.querySelector(".sd"), base, settings });
  const page = new StudentPage(root, base, home, stage);
  const code = codeIn(location.pathname);
  if (code) page.join(code);
  else page.askForCode("");
}

/** The class code in the path of an address, or null if there is none. */
function codeIn(path) {
  const code = path.match(/\/(?:specdemo-)?class\/([^/]+)$/)?.[1];
  return code ? plainCode(decodeURIComponent(code)) : null;
}

/** A class code as it was typed, perhaps in small letters or with a space in the middle. */
function plainCode(typed) {
  return typed.replace(/[^a-z0-9]/gi, "").toUpperCase();
}

class StudentPage {
  constructor(root, base, home, stage) {
    this.root = root;
    this.base = base;
    this.home = home;
    this.stage = stage;
    this.roles = rolesOf(root);
    this.disconnected = LOST;
    this.lessons = [...this.roles.lessons.querySelectorAll("[data-lesson]")];
    for (const link of this.roles.lessons.querySelectorAll("a")) link.removeAttribute("href"); // the tabs are the teacher's
    this.view = new TeachersView(stage, () => this.showState());
    this.asked = new Asked(this.roles.asked, (...values) => this.line.send("answer", ...values));
    this.drafting = new Drafting(this.roles.game, {
      send: (...values) => this.line.send("draft", ...values),
      ownVerdict: () => this.line.ownVerdict(),
    });
    this.roles.back.addEventListener("click", () => {
      this.view.follow();
      this.showState();
    });
    onSubmit(this.roles.join, () => location.assign(this.address("class", plainCode(this.roles.join.elements.code.value))));
  }

  address(path, code) {
    return new URL(`${path}/${encodeURIComponent(code)}`, this.home);
  }

  askForCode(refusal) {
    this.root.dataset.state = "unknown";
    this.roles.join.hidden = false;
    this.roles.refused.textContent = refusal;
    this.roles.where.textContent = "";
  }

  async join(code) {
    this.roles.code.textContent = `· class ${code}`;
    this.line = new ClassConnection(this.address("specdemo-class", code), {
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
      stage.put(stage.newRun({ recording: message.recording }));
    } else if (message.type === "given") {
      asked.given = message.given;
      drafting.recall(message);
    } else if (message.type === "events") this.takeEvents(message.events);
    else if (message.type === "view") this.show(message);
    else if (message.type === "question") asked.show(message.question);
    else if (message.type === "game") drafting.show(message.game);
    // This sentence is shown while `ClassConnection` tries to join again.
    else if (message.type === "refused") this.disconnected = message.error;
    else if (message.type === "end") this.end();
  }

  takeEvents(events) {
    this.stage.takeMore(events);
    const start = events.find(({ type }) => type === "start");
    if (start) showLiveLink(this.roles["run-own"], this.base, new URL(linkTo(location.href, start.run, null)).searchParams);
  }

  show(message) {
    // No lesson for the quiz: its questions are shown above.
    const lesson = message.tab === "learn" && message.lesson !== "quiz" ? message.lesson : null;
    this.roles.lessons.hidden = lesson === null;
    for (const page of this.lessons) page.toggleAttribute("data-current", page.dataset.lesson === lesson);
    if (message.tab !== this.tab || message.lesson !== this.lesson) {
      const { asked, drafting } = this;
      const parts = [[asked.root, asked.question], [drafting.root, drafting.game]];
      for (const [root, shown] of parts) root.hidden = !shown || (message.tab !== "class" && OVER.includes(shown.phase));
    } else if (lesson && message.playing && !this.isPlaying && this.view.follows) comeIntoView(this.stage.root); // it is below the lesson
    [this.tab, this.lesson, this.isPlaying] = [message.tab, message.lesson, message.playing];
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
    // The tab “Class” shows what this page shows, if that is a question or a game.
    const hasAll = this.tab === "class" && !(this.roles.asked.hidden && this.roles.game.hidden);
    write(this.roles.where, connected ? stateWords(follows, hasAll ? null : this.tab) : this.disconnected);
  }

  end() {
    this.root.dataset.state = "over";
    this.roles.where.textContent = "The class has ended. You can watch the last run until you close this page.";
    this.asked.show(null);
    this.drafting.show(null);
    this.view.leave();
    this.roles.back.hidden = true;
  }
}

function stateWords(follows, tab) {
  if (!follows) return "This page no longer follows your teacher’s page.";
  if (!(tab in tables.tabs) || FOLLOWED_TABS.includes(tab)) return "This page follows your teacher’s page.";
  return `Your teacher is on the tab “${tables.tabs[tab]}”; look at the projector.`;
}

const ROUNDING = 1e-9;

class Asked {
  /** `send({ question, answer }, onWait)` is `ClassConnection.send`. */
  constructor(root, send) {
    this.root = root;
    this.send = send;
    this.question = null;
    this.picked = null;
    this.given = null; // the `{ question, answer }` that was given before a reload, or null
  }

  /** Show the `question` that the server sent; null if there is none. */
  show(question) {
    const { number, phase } = this.question ?? {};
    this.question = question;
    this.root.hidden = !question;
    this.root.parentElement.toggleAttribute("data-asked", question?.phase === "open");
    if (!question) return;
    if (question.number !== number) this.picked = this.given?.question === question.number ? this.given.answer : null;
    // Do not rebuild at each update, because that would delete typed text.
    if (question.number !== number || question.phase !== phase) this.rebuild();
    write(this.status, this.statusWords());
    // During the measurement, the run takes the place of the options.
    const hasCounts = question.bars && question.phase !== "measuring";
    this.counts.replaceChildren(...(hasCounts ? [answerList(question)] : []));
    this.root.dataset.phase = question.phase;
    this.root.dataset.outcome = this.outcome ?? "";
    this.mark(this.picked);
  }

  mark(answer) {
    for (const [index, option] of this.options.entries()) option.setAttribute("aria-pressed", String(answer === index));
  }

  rebuild() {
    const { text, phase, why } = this.question;
    this.options = [];
    this.status = element("p", "sd-asked-told");
    this.status.setAttribute("role", "status");
    this.counts = element("div", "");
    const answer = phase === "open" ? this.form() : element("p", "sd-asked-chosen", this.answerSentence());
    const title = element("h2", "", text);
    const parts = phase === "revealed" ? [this.status, title, answer, this.counts] : [title, answer, this.counts, this.status];
    replaceParts(this.root, ...parts, ...(why ? [element("p", "", why)] : []));
    if (phase !== "measuring") comeIntoView(this.root); // a measurement is seen on the stage
  }

  get outcome() {
    const { phase, right, recorded, tolerance } = this.question;
    if (phase !== "revealed" || right === null || recorded || this.picked === null) return null;
    return Math.abs(this.picked - right) <= tolerance * Math.abs(right) + ROUNDING ? "right" : "wrong";
  }

  form() {
    const form = element("form", "sd-asked-form");
    if (this.question.kind === "choice") {
      this.options = this.question.options.map((text, index) => {
        const option = button("sd-asked-option", "", () => this.answer(index));
        option.append(element("b", "", LETTERS[index]), element("span", "", text));
        return option;
      });
      form.append(...this.options);
    } else {
      const input = element("input", "");
      input.inputMode = "decimal";
      input.setAttribute("aria-label", "Your number");
      form.append(input, element("button", "sd-button", "Answer"));
    }
    onSubmit(form, () => {
      const typed = numberIn(form.querySelector("input").value);
      if (typed === null) write(this.status, "Type a number, such as 1.5.");
      else this.answer(typed);
    });
    return form;
  }

  async answer(answer) {
    const { number } = this.question;
    let hasWaited = false;
    try {
      const wait = (words) => {
        hasWaited = true;
        this.mark(answer);
        write(this.status, words);
      };
      if (!(await this.send({ question: number, answer }, wait))) return;
      if (this.question?.number !== number) return; // the teacher has asked another question in the meantime
      this.picked = answer;
      this.show(this.question);
    } catch (error) {
      write(this.status, hasWaited ? `Your answer was not accepted. ${error.message}` : error.message);
    }
  }

  answerSentence() {
    return this.picked === null ? "" : `Your answer: ${answerWords(this.question, this.picked)}.`;
  }

  statusWords() {
    const { phase, answered, error, ahead } = this.question;
    if (phase === "open") return this.picked === null ? "" : `${this.answerSentence()} You can change your answer until voting closes.`;
    const closed = `Voting is closed (answers: ${answered}).`;
    if (phase === "closed") return `${closed} ${error ? `${error} Wait for your teacher.` : "Wait for the result."}`;
    if (phase === "measuring") return `${closed} ${ahead ? `The measurement waits in the queue; jobs before it: ${ahead}.` : "The answer is being measured now."}`;
    return ({ right: "✓ You were right. ", wrong: "✗ You were wrong. " }[this.outcome] ?? "") + resultWords(this.question);
  }
}

const NAME_KEY = "specdemo-nickname";
const SEND_BEFORE_END_MS = 300;
const SENT = "Draft sent. You can change your draft until time is up.";

class Drafting {
  /**
   * `send({ game, draft, name }, onWait)` is `ClassConnection.send`; `ownVerdict()` resolves to the verdict on the draft.
   */
  constructor(root, { send, ownVerdict }) {
    this.root = root;
    this.send = send;
    this.ownVerdict = ownVerdict;
    this.game = null;
    this.known = {};
  }

  /**
   * Remember what the server knows of this student: `drafted`, the sent `{ game, draft }`, and `writing`, the open game and
   * the seconds `left` in it (`{ game, left }`). Either may be null.
   */
  recall({ drafted, writing }) {
    this.known = { drafted, writing, at: performance.now() };
  }

  /** Show the `game` that the server sent; null if there is none. */
  show(game) {
    const before = this.game;
    this.game = game;
    this.root.hidden = !game;
    if (game && game.number === before?.number && game.phase === before.phase) return;
    clearInterval(this.timer);
    if (!game) return;
    this.status = element("p", "sd-asked-told");
    this.status.setAttribute("role", "status");
    const title = element("h2", "", "The class as the draft model");
    replaceParts(this.root, title, element("p", "sd-game-opening", game.text), this.body(), this.status);
    comeIntoView(this.root);
  }

  body() {
    const { phase, results, error } = this.game;
    if (phase === "open") return this.form();
    if (phase === "judged") return this.results(results);
    return element("p", "", phase === "failed" ? error : "Time is up. The target is verifying the drafts…");
  }

  results(results) {
    const place = element("div", "");
    const show = (own) => place.replaceChildren(gameResults(results, own));
    show(null);
    // If this fails, the results of the class are shown without the student's own verdict.
    this.ownVerdict().then((own) => own && show(own), () => {});
    return place;
  }

  form() {
    const { drafted } = this.known;
    const { number, open_drafts: isOpen } = this.game;
    this.words = element("textarea", "");
    Object.assign(this.words, { rows: 2, maxLength: 200, placeholder: "the next words", ariaLabel: "The next words" });
    const sent = drafted?.game === number ? drafted.draft.trim() : "";
    this.words.value = sent;
    this.sent = sent;
    if (sent) write(this.status, SENT);
    this.name = element("input", "");
    Object.assign(this.name, { maxLength: 16, placeholder: "nickname (optional)", ariaLabel: "Nickname (optional)" });
    this.name.value = recallInTab(NAME_KEY) ?? "";
    this.clock = element("b", "sd-game-clock");
    const note = isOpen ? "Everybody will see the best drafts, and the nicknames of the students with the best ones." : "Only you will see your draft, unless most students write the same words.";
    const fields = isOpen ? [this.words, this.name] : [this.words];
    const form = element("form", "sd-game-form", ...fields, element("button", "sd-button", "Send"), this.clock, element("small", "", note));
    onSubmit(form, () => this.sendDraft());
    this.words.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.sendDraft();
    });
    this.startClock();
    return form;
  }

  startClock() {
    const { writing, at } = this.known;
    const end = writing?.game === this.game.number ? at + 1000 * writing.left : performance.now() + 1000 * this.game.seconds;
    const tick = () => {
      const left = end - performance.now();
      this.clock.textContent = `${Math.max(0, Math.ceil(left / 1000))} s`;
      if (left > SEND_BEFORE_END_MS) return;
      clearInterval(this.timer);
      if (this.words.value.trim() && this.words.value !== this.sent) this.sendDraft();
    };
    this.timer = setInterval(tick, 200);
    tick();
  }

  async sendDraft() {
    const { words, status } = this;
    const written = words.value;
    if (!written.trim()) return write(status, "The draft is empty; type the next few words.");
    const { number, text } = this.game;
    const name = this.name.value.trim();
    const draft = /\s$/.test(text) ? written.trimStart() : ` ${written.trim()}`;
    try {
      if (!(await this.send({ game: number, draft, name }, (words) => write(status, words)))) return;
      if (this.game?.number !== number || this.game.phase !== "open") return; // the time has ended in the meantime
      this.sent = written;
      rememberInTab(NAME_KEY, name);
      write(status, SENT);
    } catch (error) {
      write(status, error.message);
    }
  }
}
