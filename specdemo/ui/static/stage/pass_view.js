// One round, drawn: the draft tokens in a row, one target pass under all of them, and the target's own choices.

import { element, write } from "../common/dom.js";
import { sharesProcessor } from "./player.js";
import { isStill } from "./recordings.js";
import { fill, fillLabel } from "./tokens.js";
import { SPECULATIVE } from "./trace.js";
import { captionWords, openingWords, ownStatus, roundWords, statusName, undraftedWords } from "../common/words.js";

const TRAIL = 5; // the number of passes that are drawn next to one another if each writes one token
const MIN_ANIMATED_MS = 250; // a shorter round would end before its animation
const FLIGHT_MS = 1200; // a shorter round has no time for its tokens to move into the text
const MARKS = { accepted: "=", rejected: "≠" };

/**
 * The columns of a round at a moment (see `Trace.momentAt`), as `{ place, draft, own, mark }`. `place` is the index of the draft
 * token, or "own" for the place after the last one. `draft` and `own` are tokens as `{ id, status, word }`, or null. A draft
 * token that is not complete has no `id`, nor has a choice of the target that the run does not record.
 */
export function columnsOf({ entry, phase, proposed }) {
  const { drafted, emission } = entry.round;
  const isJudged = phase === "verdict";
  const columns = drafted.map((token, place) => {
    const word = statusName(token);
    if (!isJudged) return { place, draft: { id: place < proposed ? token.id : null, status: "pending", word: "" }, own: null, mark: "" };
    return { place, draft: { id: token.id, status: token.status, word, rejected: token.rejected }, own: choiceAt(token, emission), mark: MARKS[word] ?? "" };
  });
  const last = isJudged && emission && ownStatus(entry.round) !== "corrected" ? named(emission.id, ownStatus(entry.round)) : null;
  const unused = isJudged && drafted.some(({ rejected }) => rejected) ? { ...NONE, status: "discarded" } : null; // not recorded
  return [...columns, { place: "own", draft: null, own: last ?? unused, mark: "" }];
}

// What the target chose at the place of a draft token that it has verified.
function choiceAt(token, emission) {
  if (token.status === "accepted") return named(token.id, "accepted");
  if (token.rejected) return emission && named(emission.id, "corrected");
  return named(token.target_top[0]?.[0] ?? null, "discarded");
}

function named(id, status) {
  return { id, status, word: status };
}

/** The columns of the latest passes of a lane that drafts nothing, each with the one token that it writes. */
function trailOf(entries, { entry, phase }) {
  let first = entry.round.index;
  while (first > 0 && entry.round.index - first < TRAIL - 1 && !entries[first - 1].round.drafted.length) first -= 1;
  return entries.slice(first, entry.round.index + 1).map(({ round }) => {
    const isDone = round !== entry.round || phase === "verdict";
    return { place: "own", round, draft: null, own: isDone && round.emission ? { id: round.emission.id, status: "", word: "" } : null, mark: "", isLit: !isDone };
  });
}

/** True if a round may have an animation of `ms`: it lasts so long, and nothing forbids animations. */
function isUnhurried({ from, to }, player, ms) {
  return player.playing && !sharesProcessor() && !isStill() && ((to - from) * 1000) / player.rate >= ms;
}

export class PassView {
  /** `onOpen(index, place)` opens a token of the round with this index. `spansOf(index)` returns its tokens in the text. */
  constructor(node, { onOpen, spansOf }) {
    Object.assign(this, { node, onOpen, spansOf });
    this.rows = node.querySelector(".sd-pass-rows");
    this.caption = node.querySelector(".sd-hint");
    this.note = node.querySelector(".sd-pass-note");
    this.columns = [];
  }

  /** Show a moment of the lane with these `entries`; null shows the empty rows. `run` is that of the trace. */
  show(moment, entries, run, pieces, player) {
    const key = moment && [moment.entry.lane, moment.entry.round.index, moment.phase, moment.proposed].join();
    if (key === this.key && pieces === this.pieces) return;
    const isFurther = player.playing && pieces === this.pieces;
    this.key = key;
    this.pieces = pieces;
    const { round } = moment?.entry ?? { round: null };
    const isTrail = round !== null && !round.drafted.length;
    this.rows.toggleAttribute("data-trail", isTrail);
    this.rows.toggleAttribute("data-unknown", run?.watched?.rounds === false); // nobody knows its passes
    this.node.dataset.phase = moment?.phase ?? "";
    this.node.dataset.motion = isFurther && isUnhurried(moment.entry, player, MIN_ANIMATED_MS) ? "on" : "off";
    write(this.note, isTrail ? undraftedWords(moment.entry, run) : "");
    this.fill(round === null ? EMPTY : isTrail ? trailOf(entries, moment) : columnsOf(moment), round, moment?.entry.lane, pieces);
    if (moment?.phase === "verdict" && isFurther && isUnhurried(moment.entry, player, FLIGHT_MS)) this.fly(round.index);
  }

  fill(columns, round, lane, pieces) {
    while (this.columns.length < columns.length) this.columns.push(this.newColumn());
    // The room of the longest draft so far, so that the columns do not move.
    if (round === null) this.most = 0;
    this.most = Math.max(this.most, columns.length);
    this.rows.style.setProperty("--columns", this.most);
    this.rows.style.setProperty("--used", columns.length);
    this.columns.forEach((column, at) => {
      column.button.hidden = at >= columns.length;
      if (at >= columns.length) return;
      const { draft, own, mark, isLit, place, round: ownRound = round } = columns[at];
      column.open = () => this.onOpen(ownRound.index, place);
      column.button.disabled = !ownRound || lane !== SPECULATIVE;
      column.button.toggleAttribute("data-lit", Boolean(isLit));
      showBox(column.draft, draft, pieces);
      showBox(column.own, own, pieces);
      write(column.mark, mark);
    });
  }

  newColumn() {
    const box = (name) => element("span", `sd-pass-box ${name}`, element("b"), element("small"));
    const [draft, mark, own] = [box("sd-pass-draft"), element("span", "sd-pass-mark"), box("sd-pass-own")];
    const button = element("button", "sd-pass-column", draft, mark, own);
    Object.assign(button, { type: "button", title: "Open this token" });
    button.style.setProperty("--at", this.columns.length);
    const column = { button, draft, mark, own, open: null };
    button.addEventListener("click", () => column.open?.());
    this.rows.append(button);
    return column;
  }

  // The boxes that are kept move to their tokens in the text.
  fly(index) {
    const spans = this.spansOf(index);
    const kept = this.columns.filter(({ button, own }) => !button.hidden && ["accepted", "corrected", "bonus"].includes(own.dataset.status));
    kept.forEach(({ own }, at) => {
      const target = spans[at]?.checkVisibility() && spans[at].getBoundingClientRect();
      if (!target) return;
      const from = own.getBoundingClientRect();
      const ghost = own.cloneNode(true);
      ghost.classList.add("sd-pass-ghost");
      ghost.setAttribute("aria-hidden", "true");
      ghost.style.cssText = `left:${from.left}px;top:${from.top}px;width:${from.width}px;height:${from.height}px`;
      this.node.append(ghost);
      const end = `translate(${target.left - from.left}px, ${target.top - from.top}px) scale(${target.width / from.width}, ${target.height / from.height})`;
      const steps = [{ opacity: 0.9 }, { opacity: 0.9, offset: 0.8 }, { transform: end, opacity: 0 }];
      ghost.animate(steps, { duration: 700, delay: 500, easing: "ease-in-out" }).finished.finally(() => ghost.remove());
    });
  }

  /** Show the sentence of a moment (see `captionWords`); it may be about a verdict that is past. */
  say(moment, settled, entries, run, isPlaying) {
    if (!moment) return;
    const latest = entries[settled - 1]?.round;
    const words = latest || moment.proposed || moment.phase !== "draft" ? captionWords(moment, latest, isPlaying) : openingWords(run);
    this.caption.toggleAttribute("data-past", latest !== undefined && latest !== moment.entry.round && words === roundWords(latest));
    write(this.caption, words);
  }
}

const NONE = { id: null, status: "", word: "" };
const EMPTY = Array.from({ length: 5 }, (_, place) => ({ place, draft: place < 4 ? NONE : null, own: null, mark: "" }));

function showBox(box, token, pieces) {
  const [label, word] = box.children;
  const { id, status, rejected } = token ?? NONE;
  box.toggleAttribute("data-none", !token);
  box.toggleAttribute("data-filled", id !== null);
  box.dataset.status = status;
  box.toggleAttribute("data-rejected", Boolean(rejected));
  write(word, token?.word ?? "");
  label.replaceChildren();
  if (id !== null) showToken(label, id, pieces);
  label.title = label.textContent; // a long token ends in an ellipsis
}

// Without the spaces around a word, which the boxes stand for.
function showToken(label, id, pieces) {
  const { text, tail } = pieces.decode(id);
  if (text.trim() && !tail.length) fill(label, text.trim(), pieces.specials.has(id));
  else fillLabel(label, id, pieces);
}
