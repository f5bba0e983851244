// The teacher's part of a game: give a beginning, watch the drafts come in, show what the target keeps of them.

import { gameResults } from "./class_results.js";
import { element, replaceParts } from "./dom.js";

const WORDS = { open: "Everybody writes the next words now.", judging: "The time is over; the target reads all drafts." };

export class ClassGames {
  /** `say` sends a message to the class, `fetchGame()` resolves to the game as everybody sees it. */
  constructor({ "game-form": form, game }, say, fetchGame) {
    this.form = form;
    this.root = game;
    this.fetchGame = fetchGame;
    this.say = say;
    this.laid = "";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { text, seconds, drafts } = form.elements;
      say({ type: "play", text: text.value, seconds: Number(seconds.value), open_drafts: drafts.checked });
    });
  }

  /** `game` as the server counts it; null: none is on. */
  async show(game) {
    this.root.hidden = !game;
    this.form.hidden = Boolean(game);
    const phase = game ? `${game.number} ${game.phase}` : "";
    if (phase !== this.laid) {
      this.laid = phase;
      const told = game && (await this.fetchGame().catch(() => null));
      if (this.laid !== phase) return; // it has gone on meanwhile
      if (game && !told) this.laid = ""; // asked for again with the next beat
      else if (game) this.lay(told);
    }
    if (game && this.count) this.count.textContent = game.count === 1 ? "1 draft" : `${game.count} drafts`;
  }

  lay({ phase, error, text, results }) {
    this.count = element("b", "sd-game-count");
    const away = element("button", "sd-button", phase === "told" || phase === "failed" ? "Another beginning" : "Call it off");
    away.type = "button";
    away.addEventListener("click", () => this.say({ type: "played" }));
    const title = element("h2", "", "The class is the draft");
    const body = phase === "told" ? gameResults(results, null) : element("p", "", error ?? WORDS[phase]);
    replaceParts(this.root, title, element("p", "sd-game-opening", text), this.count, body, away);
  }

  clear() {
    this.show(null);
  }
}
