// A game on a student's page: write the next words until the time is over, then see the target's verdict.

import { gameResults } from "./class_results.js";
import { element, onSubmit, replaceParts, write } from "./dom.js";
import { recallInTab, rememberInTab } from "./memory.js";

const NAME_KEY = "specdemo-nickname";
const SEND_BEFORE_END_MS = 300;

export class Drafting {
  /** `send({ game, draft, name })` resolves once the server has the draft, `ownVerdict()` to the verdict on it. */
  constructor(root, { send, ownVerdict }) {
    this.root = root;
    this.send = send;
    this.ownVerdict = ownVerdict;
    this.game = null;
    this.known = {};
  }

  /** Remember the server's `drafted` (`{ game, draft }`) and `writing` (`{ game, left }`, in seconds), both maybe null. */
  recall({ drafted, writing }) {
    this.known = { drafted, writing, at: performance.now() };
  }

  /** Show `game` as the server sends it; null: there is none. */
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
  }

  body() {
    const { phase, results, error } = this.game;
    if (phase === "open") return this.form();
    if (phase === "judged") return this.results(results);
    return element("p", "", phase === "failed" ? error : "The time is over; the target is judging the drafts…");
  }

  results(results) {
    const place = element("div", "");
    const show = (own) => place.replaceChildren(gameResults(results, own));
    show(null);
    this.ownVerdict().then((own) => own && show(own), () => {}); // without it, the results of the class stay
    return place;
  }

  form() {
    const { drafted } = this.known;
    const { number, open_drafts: isOpen } = this.game;
    this.words = element("textarea", "");
    Object.assign(this.words, { rows: 2, maxLength: 200, placeholder: "the next words", ariaLabel: "The next words" });
    this.words.value = drafted?.game === number ? drafted.draft.trim() : "";
    this.name = element("input", "");
    Object.assign(this.name, { maxLength: 16, placeholder: "nickname (optional)", ariaLabel: "Nickname (optional)" });
    this.name.value = recallInTab(NAME_KEY) ?? "";
    this.sent = undefined;
    this.clock = element("b", "sd-game-clock");
    const note = isOpen ? "Everybody will see all drafts, and the nicknames of the best." : "Only you will see your draft, unless most of the class writes the same.";
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
    if (!written.trim()) return write(status, "Write the next few words first.");
    const { number, text } = this.game;
    const name = this.name.value.trim();
    const draft = /\s$/.test(text) ? written.trimStart() : ` ${written.trim()}`;
    try {
      await this.send({ game: number, draft, name });
      if (this.game?.number !== number || this.game.phase !== "open") return; // the time is over meanwhile
      this.sent = written;
      rememberInTab(NAME_KEY, name);
      write(status, "Sent. You can change it until the time is over.");
    } catch (error) {
      write(status, error.message);
    }
  }
}
