// The teacher's part of a game: start it, watch the number of drafts, show the results.

import { gameResults } from "./class_results.js";
import { button, element, onSubmit, replaceParts } from "./dom.js";

const PHASE_WORDS = { open: "Everybody writes the next words now.", judging: "The time is over; the target is judging the drafts…" };

export class ClassGames {
  /** `send` posts a message to the class, `fetchGame()` resolves to the game as everybody sees it. */
  constructor({ "game-form": form, game }, send, fetchGame) {
    this.form = form;
    this.root = game;
    this.send = send;
    this.fetchGame = fetchGame;
    this.shown = "";
    onSubmit(form, () => {
      const { text, seconds, drafts } = form.elements;
      send({ type: "play", text: text.value, seconds: Number(seconds.value), open_drafts: drafts.checked });
    });
  }

  /** Show `game` as the server counts it; null: there is none. */
  async show(game) {
    this.root.hidden = !game;
    this.form.hidden = Boolean(game);
    const phase = game ? `${game.number} ${game.phase}` : "";
    if (phase !== this.shown) {
      this.shown = phase;
      const content = game && (await this.fetchGame().catch(() => null));
      if (this.shown !== phase) return; // the next phase has begun meanwhile
      if (game && !content) this.shown = ""; // the next post tries again
      else if (game) this.rebuild(content);
    }
    if (game && this.count) this.count.textContent = game.count === 1 ? "1 draft" : `${game.count} drafts`;
  }

  rebuild({ phase, error, text, results }) {
    this.count = element("b", "sd-game-count");
    const words = phase === "judged" || phase === "failed" ? "New game" : "Cancel the game";
    const dismiss = button("sd-button", words, () => this.send({ type: "dismiss-game" }));
    const title = element("h2", "", "The class as the draft model");
    const body = phase === "judged" ? gameResults(results, null) : element("p", "", error ?? PHASE_WORDS[phase]);
    replaceParts(this.root, title, element("p", "sd-game-opening", text), this.count, body, dismiss);
  }
}
