// A game of Play as the browser keeps it: whose draft is asked for, what is written, the scores. No DOM.
// Figures and sentences are the server's; nothing here counts or computes one.

// Signs that stand close to the word before them, and ends of a text that are close to the word behind.
const CLINGS = /^[\s.,;:!?…%)\]}’”']/u;
const HOLDS = /[\s([{“‘/-]$/u;

export const MODEL = "model";
const PLAYERS = ["one", "two"];

/** Whether a space belongs between `text` and `draft` where a word ends and the next begins. */
export function wantsSpace(text, draft) {
  return !HOLDS.test(text) && !CLINGS.test(draft);
}

/** `draft` as it is to stand behind `text`, with the space that the visitor need not type unless `space` is off. */
export function joined(text, draft, space) {
  return space && wantsSpace(text, draft) ? ` ${draft}` : draft;
}

/** Whether there is anything in a draft that could be judged. */
export function isEmpty(draft) {
  return !draft.replaceAll(" ", "");
}

export class Game {
  /** `players` is 1 or 2; the game is over after `most` turns, or when the text cannot go on. */
  constructor(opening, players, most) {
    // A word that begins with its space follows best on a text that does not end with one.
    this.opening = opening.replace(/ +$/, "");
    this.players = players;
    this.most = most;
    this.text = this.opening;
    this.turns = []; // { judged: [event of each drafter], end: the `turn` event }
    this.drafts = []; // of the turn under way, each as its player left it
    this.judged = [];
  }

  /** Who drafts next: 0, 1, or null while the target judges and when the game is over. */
  get player() {
    return this.over || this.drafts.length === this.players ? null : this.drafts.length;
  }

  get over() {
    return this.turns.length >= this.most || Boolean(this.turns.at(-1)?.end.finish);
  }

  /** The number of the turn under way, or of the last one. */
  get number() {
    return Math.min(this.turns.length + (this.over ? 0 : 1), Math.max(this.most, this.turns.length));
  }

  /** Take the next player's draft; whether the target can judge now. */
  hand(draft) {
    this.drafts.push(draft);
    return this.drafts.length === this.players;
  }

  /** The arguments of the API endpoint `play`, in its order. */
  request() {
    const [first, second = ""] = this.drafts;
    const written = this.turns.at(-1)?.end.written ?? [];
    const scores = Object.fromEntries(this.scores().map(({ player, score }) => [player, score]));
    return [this.opening, first, second, written, scores];
  }

  /** Each drafter's latest `judged` event. */
  scores() {
    return this.turns.at(-1)?.judged ?? [];
  }

  /** Take in one event of the turn under way; whether the turn is complete with it. */
  take(event) {
    if (event.type === "judged") this.judged.push(event);
    if (event.type !== "turn") return false;
    this.turns.push({ judged: this.judged, end: event });
    this.text = event.text;
    this.judged = [];
    this.drafts = [];
    return true;
  }

  /** The turn under way is off; returns the drafts, which may be handed in again. */
  giveBack() {
    const { drafts } = this;
    this.drafts = [];
    this.judged = [];
    return drafts;
  }

  /** The drafters of this game in the order of the score board: `{ player, name, judged }`, the last null at first. */
  drafters() {
    const names = this.players === 1 ? ["You"] : ["Player 1", "Player 2"];
    const places = [...names.map((name, place) => [PLAYERS[place], name]), [MODEL, "Draft model"]];
    return places.map(([player, name]) => {
      const judged = this.scores().find((event) => event.player === player) ?? null;
      return { player, name: judged?.name ?? name, judged };
    });
  }
}
