// The state of a game of Play in the browser: drafts, turns and scores. No DOM; the server computes all figures.

// Characters that attach to the word before them, and ends of a text that attach to the next word.
const ATTACHES = /^[\s.,;:!?…%)\]}’”']/u;
const HOLDS = /[\s([{“‘/-]$/u;

export const MODEL = "model";
const PLAYERS = ["one", "two"];

/** Whether `draft` starts with a new word after `text`, which needs a space. */
export function wantsSpace(text, draft) {
  return !HOLDS.test(text) && !ATTACHES.test(draft);
}

/** `draft` as it follows `text`, with a space in front if it wants one and `space` is on. */
export function joined(text, draft, space) {
  return space && wantsSpace(text, draft) ? ` ${draft}` : draft;
}

/** Whether a draft has nothing that could be judged. */
export function isEmpty(draft) {
  return !draft.replaceAll(" ", "");
}

export class Game {
  /** `players` is 1 or 2; the game is over after `most` turns, or when the text ends. */
  constructor(opening, players, most) {
    this.opening = opening.replace(/ +$/, ""); // the next word brings its own space
    this.players = players;
    this.most = most;
    this.text = this.opening;
    this.turns = []; // { judged: [event of each drafter], end: the `turn` event }
    this.drafts = []; // of the current turn
    this.judged = [];
  }

  /** The player who drafts next: 0, 1, or null while the target verifies and when the game is over. */
  get player() {
    return this.over || this.drafts.length === this.players ? null : this.drafts.length;
  }

  get over() {
    return this.turns.length >= this.most || Boolean(this.turns.at(-1)?.end.finish);
  }

  /** The number of the current turn, or of the last one. */
  get number() {
    return this.turns.length + (this.over ? 0 : 1);
  }

  /** Take the next player's draft; return whether the turn can be verified. */
  hand(draft) {
    this.drafts.push(draft);
    return this.drafts.length === this.players;
  }

  /** The arguments of the API endpoint `play`, in order. */
  request() {
    const [first, second = ""] = this.drafts;
    const { judged = [], end } = this.turns.at(-1) ?? {};
    const scores = Object.fromEntries(judged.map(({ player, score }) => [player, score]));
    return [this.opening, first, second, end?.written ?? [], scores];
  }

  /** Take an event of the current turn; return whether it completes the turn. */
  take(event) {
    if (event.type === "judged") this.judged.push(event);
    if (event.type !== "turn") return false;
    this.turns.push({ judged: this.judged, end: event });
    this.text = event.text;
    this.giveBack();
    return true;
  }

  /** Discard the current turn and return its drafts. */
  giveBack() {
    const { drafts } = this;
    this.drafts = [];
    this.judged = [];
    return drafts;
  }

  /** The rows of the score board, `{ player, name, judged }`; `judged` is null before the first turn. */
  drafters() {
    const names = this.players === 1 ? ["You"] : ["Player 1", "Player 2"];
    const rows = [...names.map((name, index) => [PLAYERS[index], name]), [MODEL, "Draft model"]];
    return rows.map(([player, name]) => {
      const judged = this.turns.at(-1)?.judged.find((event) => event.player === player) ?? null;
      return { player, name: judged?.name ?? name, judged };
    });
  }
}
