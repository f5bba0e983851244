// The game on a student's page: write the next words until the time is over, then see what the target keeps.

import { gameResults } from "./class_results.js";
import { element, replaceParts } from "./dom.js";
import { recallInTab, rememberInTab } from "./memory.js";

const NAME_KEY = "specdemo-nickname";
const LAST_MS = 300; // so much before the end what stands there is sent

export class Drafting {
  /** `send({ game, draft, name })` resolves to the draft's number, `ownVerdict()` to what became of one's own draft. */
  constructor(root, { send, ownVerdict }) {
    this.root = root;
    this.send = send;
    this.ownVerdict = ownVerdict;
    this.game = null;
    this.before = {};
  }

  /**
   * What is known of who joins again: `drafted` (`{ game, draft }`) and `writing` (`{ game, left }`, in seconds), or
   * null.
   */
  recall({ drafted, writing }) {
    this.before = { drafted, writing, at: performance.now() };
  }

  /** `game` as the server tells it; null: none is on. */
  show(game) {
    const known = this.game;
    this.game = game;
    this.root.hidden = !game;
    if (!game) return this.stopClock();
    if (game.number === known?.number && game.phase === known.phase) return;
    this.stopClock();
    this.told = element("p", "sd-asked-told");
    this.told.setAttribute("role", "status");
    const title = element("h2", "", "The class is the draft");
    replaceParts(this.root, title, element("p", "sd-game-opening", game.text), ...this.parts(), this.told);
  }

  parts() {
    const { phase, results, error } = this.game;
    if (phase === "open") return this.form();
    if (phase === "told") return [this.results(results)];
    return [element("p", "", phase === "failed" ? error : "The time is over. The target reads all drafts…")];
  }

  results(results) {
    const holder = element("div", "", gameResults(results, null));
    const showOwn = (own) => holder.replaceChildren(gameResults(results, own));
    this.ownVerdict().then(showOwn, () => {}); // without it there is the class's
    return holder;
  }

  form() {
    const words = element("textarea", "");
    words.rows = 2;
    words.maxLength = 200;
    const { drafted } = this.before;
    words.value = (drafted?.game === this.game.number && drafted.draft.trim()) || "";
    this.sent = undefined;
    words.setAttribute("aria-label", "The next words");
    words.placeholder = "the next words";
    const name = element("input", "");
    name.maxLength = 16;
    name.setAttribute("aria-label", "A nickname, if you like");
    name.placeholder = "nickname, if you like";
    name.value = recallInTab(NAME_KEY) ?? "";
    const send = element("button", "sd-button", "Send");
    send.type = "submit";
    this.clock = element("b", "sd-game-clock");
    const seen = this.game.open_drafts ? "Everybody will see what is written, with the nicknames of the best." : "Only you will see what you write, unless most write the same.";
    const form = element("form", "sd-game-form", words, ...(this.game.open_drafts ? [name] : []), send, this.clock, element("small", "", seen));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.sendDraft(words, name);
    });
    words.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.sendDraft(words, name);
    });
    this.startClock(words, name);
    return [form];
  }

  startClock(words, name) {
    const { writing, at } = this.before;
    const end = writing?.game === this.game.number ? at + 1000 * writing.left : performance.now() + 1000 * this.game.seconds;
    const tick = () => {
      const left = end - performance.now();
      this.clock.textContent = `${Math.max(0, Math.ceil(left / 1000))} s`;
      if (left > LAST_MS) return;
      this.stopClock();
      if (words.value.trim() && words.value !== this.sent) this.sendDraft(words, name);
    };
    tick();
    this.timer = setInterval(tick, 200);
  }

  stopClock() {
    clearInterval(this.timer);
  }

  async sendDraft(words, name) {
    const written = words.value;
    if (!written.trim()) return this.tell("Write the next few words first.");
    const { number, text } = this.game;
    const draft = /\s$/.test(text) ? written.trimStart() : ` ${written.trim()}`;
    try {
      await this.send({ game: number, draft, name: name.value.trim() });
      if (this.game?.number !== number || this.game.phase !== "open") return; // it has gone on meanwhile
      this.sent = written;
      rememberInTab(NAME_KEY, name.value.trim());
      this.tell("Sent. You can change it until the time is over.");
    } catch (error) {
      this.tell(error.message);
    }
  }

  tell(words) {
    this.told.textContent = words;
  }
}
