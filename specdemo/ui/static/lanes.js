// One decoder's text at any moment of a trace: rounds are built once, then put in, taken out and flipped.

import { element } from "./dom.js";
import { RoundFlow } from "./lane_scroll.js";
import { sharesProcessor } from "./player.js";
import { RoundNode, Sweep } from "./round_node.js";
import { fill } from "./tokens.js";

const KEPT_OPEN = 2; // so many of the last settled rounds show their discarded tokens in full
const SLOWEST_RUSH_MS = 250; // a shorter round is gone before its marks have fallen

export class LaneView {
  constructor(article, pieces) {
    this.article = article;
    this.box = article.querySelector(".sd-text");
    this.flow = new RoundFlow(this.box);
    this.sweep = new Sweep();
    this.following = true; // set by who scrolls the lanes
    this.spare = 0;
    this.clear(pieces);
  }

  /** Empty, for another run. */
  clear(pieces) {
    this.pieces = pieces;
    this.sweep.clear();
    this.flow.clear();
    this.rounds = []; // every RoundNode built so far
    this.settled = 0; // how many of them have their verdict
    this.pending = null; // the round that waits for its verdict
    this.departure = null;
    this.selected = null;
    this.setSpare(0);
  }

  setPrompt(text, mode) {
    const prompt = element("span", "sd-prompt");
    prompt.dataset.mode = mode;
    fill(prompt, text, false);
    if (mode === "chat") prompt.title = text;
    this.flow.setHead(prompt);
  }

  /** Draw the lane as it is in `state` (see `LaneTrace.stateAt`) at the clock of `player`. */
  show(entries, { settled, proposed, verifying }, player) {
    const wanted = settled + (proposed || verifying ? 1 : 0);
    const firstChanged = Math.min(this.settled, settled);
    const isNew = settled === this.settled + 1;
    this.build(entries, wanted);
    if (this.pending !== this.rounds[settled] || !verifying) this.sweep.clear();
    this.flow.show(this.rounds, wanted, this.following);
    for (let index = firstChanged; index < settled; index += 1) this.rounds[index].settle();
    if (settled !== this.settled) this.shrinkOld(firstChanged, settled, isNew && isUnhurried(entries[settled - 1], player));
    this.pending = wanted > settled ? this.rounds[settled] : null;
    this.pending?.pend(proposed, verifying);
    this.verifying = verifying;
    this.settled = settled;
  }

  /** The target pass under way as a bar over its tokens. Apart from `show`, since it reads a layout. */
  showPass(player) {
    this.sweep.show(this.verifying ? this.pending : null, this.box, player);
  }

  shrinkOld(firstChanged, settled, moving) {
    for (let index = Math.max(0, firstChanged - KEPT_OPEN); index < settled; index += 1) {
      this.rounds[index].fold(index < settled - KEPT_OPEN);
    }
    this.rounds[this.settled - 1]?.markLatest(false);
    this.rounds[settled - 1]?.markLatest(true, moving);
  }

  build(entries, wanted) {
    for (let index = this.rounds.length; index < wanted; index += 1) {
      const node = new RoundNode(entries[index], this.pieces, this.endOf(index - 1));
      node.markDeparted(this.departure);
      this.rounds.push(node);
    }
  }

  /** How the text ends after round `index`. */
  endOf(index) {
    const node = this.rounds[index];
    return node ? { end: node.end, start: node.start + node.kept.length } : { end: undefined, start: 0 };
  }

  /** Tokens of the text that stand there. */
  get reach() {
    return this.endOf(this.settled - 1).start;
  }

  /** Lines may break elsewhere from now on. */
  reflow() {
    this.rowKnown = null;
    this.sweep.clear();
    this.flow.forgetLines();
    this.flow.show(this.rounds, this.flow.shown, false);
  }

  /** All of the text in the page, for whoever looks back. */
  showAll() {
    this.flow.show(this.rounds, this.flow.shown, false);
  }

  /** From output position `departure` on this lane says something else than the target; null where it does not. */
  markDeparture(departure) {
    if (departure === this.departure) return;
    this.departure = departure;
    for (const node of this.rounds) node.markDeparted(departure);
  }

  /** Outline one round and bring it into view. */
  select(index) {
    this.rounds[this.selected]?.element.removeAttribute("data-selected");
    this.selected = index;
    const node = index === null ? null : this.rounds[index];
    if (!node) return;
    node.element.setAttribute("data-selected", "");
    this.showAll();
    scrollToShow(this.box, node.element);
  }

  /** `{ entry, token, place }` of a span of this lane, see `RoundNode.factsOf`. */
  factsOf(span) {
    return this.nodeOf(span)?.factsOf(span) ?? null;
  }

  /** Show in the text what a tick stands for, or shrink it again; lines may break elsewhere by it. */
  toggleTick(tick) {
    this.nodeOf(tick).element.toggleAttribute("data-opened");
  }

  nodeOf(span) {
    return this.rounds.find(({ element: round }) => round === span.parentElement);
  }

  /** Height of a row in px. */
  get row() {
    this.rowKnown ??= parseFloat(getComputedStyle(this.box).lineHeight);
    return this.rowKnown;
  }

  /** Height of the text in px, without the room below it. */
  get height() {
    return this.box.scrollHeight - this.spare;
  }

  /** Room below the text, so that it can be scrolled as far as a longer one. */
  setSpare(px) {
    if (px === this.spare) return;
    this.spare = px;
    this.box.style.paddingBottom = `${px}px`;
  }

  /** `{ position, top }` of the first token of the text that begins at `top` px or below; null where none does. */
  firstTokenFrom(top) {
    let [low, high] = [this.flow.first, this.settled];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (topIn(this.box, this.rounds[middle].kept[0]) >= top - this.row / 2) high = middle;
      else low = middle + 1;
    }
    if (low >= this.settled) return null;
    return { position: this.rounds[low].start, top: topIn(this.box, this.rounds[low].kept[0]) };
  }

  /** Where the token at `position` of the text begins, in px; null where it is not in the page. */
  topOf(position) {
    if (position >= this.reach) return null;
    let [low, high] = [0, this.settled - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.rounds[middle].start <= position) low = middle;
      else high = middle - 1;
    }
    return low < this.flow.first ? null : topIn(this.box, this.rounds[low].kept[position - this.rounds[low].start]);
  }
}

/** Whether there is time to see a round's verdict fall. */
function isUnhurried({ from, to }, player) {
  return player.playing && !sharesProcessor() && ((to - from) * 1000) / player.rate >= SLOWEST_RUSH_MS;
}

/** How far below the start of what `box` scrolls `inner` begins, in px. */
function topIn(box, inner) {
  return inner.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop;
}

/** Scroll `box` (and nothing else) so that `inner` is seen, by whole rows of text. */
export function scrollToShow(box, inner) {
  const row = parseFloat(getComputedStyle(box).lineHeight);
  const from = topIn(box, inner);
  const top = Math.round(from / row) * row;
  const bottom = Math.round((from + inner.getBoundingClientRect().height) / row) * row;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - Math.floor(box.clientHeight / row) * row;
}
