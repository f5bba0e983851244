// What a game has come to: the text so far, every turn with its drafts, and the scores.

import { element } from "./dom.js";
import { MODEL } from "./game.js";
import { fill, Pieces, tokenSpan } from "./tokens.js";
import { percent } from "./percent.js";

export class Board {
  /** Of the roles it needs `text`, `past`, `turns` and `scores`; `pending` is the draft at the end of the text. */
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
    this.ending = undefined; // how the text ends, see `tokenSpan`
    this.turns.replaceChildren();
    this.past.hidden = true;
    const opening = element("span", "sd-prompt");
    fill(opening, game.opening, false);
    this.text.replaceChildren(opening, this.pending);
    this.showScores(game);
  }

  /** Show the game's latest turn. */
  showTurn(game) {
    const turn = game.turns.at(-1);
    this.extendText(turn.judged.find(({ player }) => player === turn.end.best).round);
    this.past.hidden = false;
    const drafts = turn.judged.map((event) => this.draftRow(event));
    this.turns.prepend(element("li", "", element("h3", "", `Turn ${game.turns.length}`), ...drafts));
    this.showScores(game);
  }

  /** The tokens a round added, behind those that stand there. */
  extendText({ drafted, emission }) {
    for (const token of [...drafted.filter(({ status }) => status === "accepted"), ...(emission ? [emission] : [])]) {
      const { span, end } = tokenSpan(token.id, this.ending, this.pieces);
      this.ending = end;
      span.dataset.status = token.status;
      this.pending.before(span);
    }
  }

  /** One drafter's round: its tokens in reading order, each over its probabilities. */
  draftRow({ player, name, round, cut }) {
    const row = element("div", "sd-play-row", element("h4", "", name));
    const cells = element("p", "sd-play-cells");
    const ahead = round.drafted.filter((token) => token.status === "accepted" || token.rejected).length;
    const own = round.emission ? [round.emission] : [];
    const shown = [...round.drafted.slice(0, ahead), ...own, ...round.drafted.slice(ahead)];
    for (const token of shown) cells.append(this.cell(token, player === MODEL));
    if (cut) {
      const words = element("span", "sd-play-cut");
      fill(words, `cut: “${cut.trim()}”`, false);
      cells.append(words);
    }
    const kept = round.drafted.filter(({ status }) => status === "accepted").length;
    row.append(cells, element("p", "sd-play-count", round.drafted.length ? `${kept} of ${round.drafted.length}` : "nothing"));
    return row;
  }

  cell(token, byModel) {
    const { span } = tokenSpan(token.id, undefined, this.pieces);
    span.dataset.status = token.status;
    if (token.rejected) span.dataset.rejected = "true";
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
      const figures = judged ? [judged.alpha === null ? "–" : `${Math.round(100 * judged.alpha)}%`, judged.tau.toFixed(2), judged.score.best] : ["–", "–", "–"];
      const row = element("tr", "", head, ...figures.map((figure) => element("td", "", String(figure))));
      row.dataset.player = player;
      return row;
    });
    this.scores.replaceChildren(...rows);
  }
}
