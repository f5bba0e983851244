// A game of Play on the page: the text so far, the drafts of every turn, and the scores.

import { element } from "./dom.js";
import { MODEL } from "./game.js";
import { percent } from "./percent.js";
import { fill, Pieces, tokenSpan } from "./tokens.js";

/** The tokens of a round in reading order: accepted, rejected, the target's own, discarded. */
export function readingOrder({ drafted, emission }) {
  const compared = drafted.filter(({ status, rejected }) => status === "accepted" || rejected).length;
  return [...drafted.slice(0, compared), ...(emission ? [emission] : []), ...drafted.slice(compared)];
}

export function acceptedCount({ drafted }) {
  return drafted.filter(({ status }) => status === "accepted").length;
}

/** `tokenSpan` in the colour of the token's verdict. */
export function verdictSpan(token, end, pieces) {
  const made = tokenSpan(token.id, end, pieces);
  made.span.dataset.status = token.status;
  if (token.rejected) made.span.dataset.rejected = "true";
  return made;
}

export class Board {
  /** `pending` is the element of the current draft at the end of the text. */
  constructor({ text, past, turns, scores }, pending) {
    this.text = text;
    this.past = past;
    this.turns = turns;
    this.scores = scores;
    this.pending = pending;
  }

  /** Show a game before its first turn. */
  begin(game) {
    this.pieces = new Pieces();
    this.ending = undefined; // of the text, see `tokenSpan`
    this.turns.replaceChildren();
    this.past.hidden = true;
    const opening = element("span", "sd-prompt");
    fill(opening, game.opening, false);
    this.text.replaceChildren(opening, this.pending);
    this.showScores(game);
  }

  /** Show the game's latest turn. */
  showTurn(game) {
    const { judged, end } = game.turns.at(-1);
    const best = judged.find(({ player }) => player === end.best).round;
    for (const token of readingOrder(best)) {
      if (token.status === "discarded") continue;
      const made = verdictSpan(token, this.ending, this.pieces);
      this.ending = made.end;
      this.pending.before(made.span);
    }
    this.past.hidden = false;
    const drafts = judged.map((event) => this.draftRow(event));
    this.turns.prepend(element("li", "", element("h3", "", `Turn ${game.turns.length}`), ...drafts));
    this.showScores(game);
  }

  draftRow({ player, name, round, cut }) {
    const cells = element("p", "sd-play-cells", ...readingOrder(round).map((token) => this.cell(token, player === MODEL)));
    if (cut) {
      const words = element("span", "sd-play-cut");
      fill(words, `cut: “${cut.trim()}”`, false);
      cells.append(words);
    }
    const count = round.drafted.length ? `${acceptedCount(round)} of ${round.drafted.length}` : "nothing";
    return element("div", "sd-play-row", element("h4", "", name), cells, element("p", "sd-play-count", count));
  }

  cell(token, byModel) {
    const { span } = verdictSpan(token, undefined, this.pieces);
    const figures = [];
    if ("raw_prob" in token) figures.push(`p ${percent(token.raw_prob)}`);
    else if (token.compared) figures.push(`p ${percent(token.raw_p)}`);
    if (byModel && token.compared && token.raw_q !== null) figures.push(`q ${percent(token.raw_q)}`);
    return element("span", "sd-play-cell", span, ...figures.map((figure) => element("small", "", figure)));
  }

  showScores(game) {
    const rows = game.drafters().map(({ player, name, judged }) => {
      const head = element("th", "", name);
      head.scope = "row";
      const rate = judged && judged.alpha !== null ? `${Math.round(100 * judged.alpha)}%` : "–";
      const figures = judged ? [rate, judged.tau.toFixed(2), String(judged.score.best)] : ["–", "–", "–"];
      const row = element("tr", "", head, ...figures.map((figure) => element("td", "", figure)));
      row.dataset.player = player;
      return row;
    });
    this.scores.replaceChildren(...rows);
  }
}
