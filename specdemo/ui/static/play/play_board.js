// The view of a game of the tab "Play": the draft box, the text so far, the drafts of every turn, and the scores.

import { element } from "../common/dom.js";
import { fill, Pieces, tokenSpan } from "../stage/tokens.js";
import { percent, share } from "../common/words.js";

export const MODEL = "model";
const BORDERS_PX = 2; // the height of both borders, which scrollHeight does not include
// Characters that need no space before them, and ends of a text that need no space after them.
const ATTACHES = /^[\s.,;:!?…%)\]}’”']/u;
const HOLDS = /[\s([{“‘/-]$/u;

/** The tokens of a round in the order shown: accepted, rejected, the target's own, discarded. */
export function readingOrder({ drafted, emission }) {
  const compared = drafted.filter(({ status, rejected }) => status === "accepted" || rejected).length;
  return [...drafted.slice(0, compared), ...(emission ? [emission] : []), ...drafted.slice(compared)];
}

export function acceptedCount({ drafted }) {
  return drafted.filter(({ status }) => status === "accepted").length;
}

/** The result of `tokenSpan`, with the span in the color of the token's verdict. */
export function verdictSpan(token, end, pieces) {
  const made = tokenSpan(token.id, end, pieces);
  made.span.dataset.status = token.status;
  if (token.rejected) made.span.dataset.rejected = "true";
  return made;
}

/** The text so far, the drafts of every turn, and the scores. */
export class Board {
  /** `pending` is the element for the current draft, at the end of the text. */
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
    this.ending = undefined; // the `end` of the text so far, see `tokenSpan`
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
    const count = round.drafted.length ? `${acceptedCount(round)} of ${round.drafted.length}` : "no draft";
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
      const figures = judged ? [share(judged.alpha), judged.tau.toFixed(2), String(judged.score.best)] : ["–", "–", "–"];
      const row = element("tr", "", head, ...figures.map((figure) => element("td", "", figure)));
      row.dataset.player = player;
      return row;
    });
    this.scores.replaceChildren(...rows);
  }
}

/** True if `draft` starts with a new word after `text`, so that a space is needed between them. */
export function wantsSpace(text, draft) {
  return !HOLDS.test(text) && !ATTACHES.test(draft);
}

/** `draft` as it continues `text`: with a space in front if `wantsSpace` is true and `space` is on. */
export function joined(text, draft, space) {
  return space && wantsSpace(text, draft) ? ` ${draft}` : draft;
}

/** True if a draft contains nothing that the target could verify. */
export function isEmpty(draft) {
  return !draft.replaceAll(" ", "");
}

/** The text box for a draft, and its preview at the end of the text. */
export class DraftBox {
  constructor({ draft, space, text }, maxChars, onSubmit) {
    this.draft = draft;
    this.space = space;
    this.text = text;
    this.onSubmit = onSubmit;
    this.pending = element("span", "sd-token");
    this.before = ""; // the text that the draft continues
    this.spaced = true;
    draft.maxLength = maxChars;
    draft.addEventListener("input", () => this.preview());
    draft.addEventListener("keydown", (event) => this.key(event));
    space.addEventListener("click", () => this.setSpaced(!this.spaced));
  }

  get isEmpty() {
    return isEmpty(this.draft.value);
  }

  /** The typed draft, with its leading space. */
  get words() {
    return joined(this.before, this.draft.value, this.spaced);
  }

  /** Set the text that the draft continues. */
  follow(text) {
    this.before = text;
    this.preview();
  }

  /** Open the box with `draft` in it; a space in front of the draft is on. */
  open(draft) {
    this.draft.value = draft;
    delete this.pending.dataset.verifying;
    this.setSpaced(true);
  }

  setSpaced(spaced) {
    this.spaced = spaced;
    this.preview();
  }

  preview() {
    const { draft, space, text, pending } = this;
    const canSpace = wantsSpace(this.before, draft.value);
    space.disabled = !canSpace;
    space.setAttribute("aria-pressed", String(canSpace && this.spaced));
    pending.replaceChildren();
    fill(pending, draft.value && this.words, false);
    delete pending.dataset.partial;
    pending.dataset.status = "pending";
    pending.hidden = !draft.value;
    draft.style.height = "auto";
    draft.style.height = `${draft.scrollHeight + BORDERS_PX}px`;
    text.scrollTop = text.scrollHeight;
  }

  key(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.onSubmit();
    } else if (event.key === "Backspace" && !this.draft.value) this.setSpaced(false);
  }

  /** Show the draft of a single player while the target verifies it; with two players hide it. */
  showVerifying(players) {
    if (players === 1) this.pending.dataset.verifying = "true";
    else {
      this.draft.value = "";
      this.pending.hidden = true;
    }
  }
}
