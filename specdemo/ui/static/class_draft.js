// The game on a student's page: write the next words until the time is over, then see what the target keeps.

import { gameResults } from "./class_results.js";
import { element } from "./dom.js";

const NAME_KEY = "specdemo-nickname";
const LAST_MS = 300; // so much before the end what stands there is sent

export class Drafting {
  /** `send({ game, draft, name })` resolves to the draft's number. */
  constructor(root, send) {
    this.root = root;
    this.send = send;
    this.game = null;
    this.number = 0;
  }

  /** What was written before the page was loaded anew: `{ game, number, draft }`, or null. */
  recall(drafted) {
    this.drafted = drafted;
  }

  /** `game` as the server tells it; null: none is on. */
  show(game) {
    const known = this.game;
    this.game = game;
    this.root.hidden = !game;
    if (!game) return this.stopClock();
    if (game.number !== known?.number) this.number = this.drafted?.game === game.number ? this.drafted.number : 0;
    if (game.number === known?.number && game.phase === known.phase) return;
    this.stopClock();
    const title = element("h2", "", "The class is the draft");
    const opening = element("p", "sd-game-opening", game.text);
    this.told = element("p", "sd-asked-told");
    this.told.setAttribute("role", "status");
    this.root.replaceChildren(title, opening, ...this.parts(), this.told);
  }

  parts() {
    const { phase, results, error } = this.game;
    if (phase === "open") return this.form();
    if (phase === "told") return [gameResults(results, this.number)];
    return [element("p", "", phase === "failed" ? error : "The time is over. The target reads all drafts…")];
  }

  form() {
    const words = element("textarea", "");
    words.rows = 2;
    words.maxLength = 200;
    words.value = (this.drafted?.game === this.game.number && this.drafted.draft.trim()) || "";
    words.setAttribute("aria-label", "The next words");
    words.placeholder = "the next words";
    const name = element("input", "");
    name.maxLength = 16;
    name.setAttribute("aria-label", "A nickname, if you like");
    name.placeholder = "nickname (not needed)";
    name.value = recallName();
    const send = element("button", "sd-button", "Send");
    send.type = "submit";
    this.clock = element("b", "sd-game-clock");
    const form = element("form", "sd-game-form", words, name, send, this.clock);
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
    const end = performance.now() + 1000 * this.game.seconds;
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
    const draft = /\s$/.test(this.game.text) ? written.trimStart() : ` ${written.trim()}`;
    try {
      this.number = await this.send({ game: this.game.number, draft, name: name.value.trim() });
      this.sent = written;
      rememberName(name.value.trim());
      this.tell("Sent. You can change it until the time is over.");
    } catch (error) {
      this.tell(error.message);
    }
  }

  tell(words) {
    this.told.textContent = words;
  }
}

function recallName() {
  try {
    return sessionStorage.getItem(NAME_KEY) ?? "";
  } catch {
    return "";
  }
}

function rememberName(name) {
  try {
    sessionStorage.setItem(NAME_KEY, name);
  } catch {
    // Then it is typed again.
  }
}
