// The teacher's part of a game: give a beginning, watch the drafts come in, show what the target keeps of them.

import { gameResults } from "./class_results.js";
import { element } from "./dom.js";

const WORDS = { open: "Everybody writes the next words now.", judging: "The time is over; the target reads all drafts." };

export class ClassGames {
  /** `say` sends a message to the class, `fetchGame()` resolves to the game as everybody sees it. */
  constructor({ "game-form": form, game }, say, fetchGame) {
    this.form = form;
    this.root = game;
    this.fetchGame = fetchGame;
    this.say = say;
    this.shown = "";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { text, seconds, names } = form.elements;
      say({ type: "play", text: text.value, seconds: Number(seconds.value), names: names.checked });
    });
  }

  /** `game` as the server counts it; null: none is on. */
  async show(game) {
    const text = JSON.stringify(game);
    if (text === this.shown) return;
    const known = JSON.parse(this.shown || "null");
    this.shown = text;
    this.root.hidden = !game;
    this.form.hidden = Boolean(game);
    if (!game) return this.root.replaceChildren();
    const isNew = known?.number !== game.number || known.phase !== game.phase;
    if (isNew) await this.lay(game);
    this.count.textContent = game.count === 1 ? "1 draft" : `${game.count} drafts`;
  }

  async lay({ phase, error }) {
    this.count = element("b", "sd-game-count");
    const told = await this.fetchGame();
    const away = element("button", "sd-button", phase === "told" || phase === "failed" ? "Another beginning" : "Call it off");
    away.type = "button";
    away.addEventListener("click", () => this.say({ type: "played" }));
    const head = [element("h2", "", "The class is the draft"), element("p", "sd-game-opening", told.text)];
    const body = phase === "told" ? gameResults(told.results, 0) : element("p", "", error ?? WORDS[phase]);
    this.root.replaceChildren(...head, this.count, body, away);
  }

  clear() {
    this.show(null);
  }
}
