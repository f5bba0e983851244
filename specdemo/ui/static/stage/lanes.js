// The text of one lane at any moment of a trace. Each round is built once; later it is only shown, hidden or changed.

import { element } from "../common/dom.js";
import { RoundFlow } from "./lane_scroll.js";
import { sharesProcessor } from "./player.js";
import { RoundNode, Sweep } from "./round_node.js";
import { fill } from "./tokens.js";

const KEPT_OPEN = 2; // the number of latest rounds whose discarded tokens are shown in full
const MIN_ANIMATED_MS = 250; // a shorter round would end before its animation

export class LaneView {
  constructor(article, pieces) {
    this.article = article;
    this.box = article.querySelector(".sd-text");
    this.flow = new RoundFlow(this.box);
    this.sweep = new Sweep();
    this.following = true; // LaneScroll changes it
    this.spare = 0;
    this.player = null; // that of the latest pass shown
    this.clear(pieces);
  }

  clear(pieces) {
    this.pieces = pieces;
    this.sweep.clear();
    this.flow.clear();
    this.rounds = []; // every RoundNode built so far
    this.settled = 0; // the number of rounds that show their verdict
    this.ended = false;
    this.pending = null; // the round that waits for its verdict
    this.divergence = null;
    this.selected = null;
    this.setSpare(0);
  }

  setPrompt(text, mode) {
    const prompt = element("span", "sd-prompt");
    prompt.dataset.mode = mode;
    fill(prompt, text, false);
    if (mode === "chat") {
      prompt.title = text;
      prompt.dir = "auto"; // so that it does not decide the direction of the answer
    }
    this.flow.setHead(prompt);
  }

  /** Draw the lane in the state of `LaneTrace.stateAt`, at the time of `player`. */
  show(entries, { settled, proposed, verifying, ended }, player) {
    const wanted = settled + (proposed || verifying ? 1 : 0);
    const firstChanged = Math.min(this.settled, settled);
    const isNew = settled === this.settled + 1;
    this.build(entries, wanted);
    if (this.pending !== this.rounds[settled] || !verifying) this.sweep.clear();
    this.flow.show(this.rounds, wanted, this.following);
    for (let index = firstChanged; index < settled; index += 1) this.rounds[index].settle();
    const isMoving = isNew && isUnhurried(entries[settled - 1], player);
    if (settled !== this.settled || ended !== this.ended) this.shrinkOld(firstChanged, settled, ended, isMoving);
    this.pending = wanted > settled ? this.rounds[settled] : null;
    this.pending?.pend(proposed, verifying);
    this.verifying = verifying;
    this.settled = settled;
    this.ended = ended;
  }

  /** Show the current target pass as a bar over its tokens. It is not part of `show`, because it reads the layout. */
  showPass(player) {
    this.player = player;
    this.sweep.show(this.verifying ? this.pending : null, this.box, player);
  }

  // A lane that has ended shows only its text, so that the lanes look the same where their texts are.
  shrinkOld(firstChanged, settled, ended, moving) {
    for (let index = Math.max(0, firstChanged - KEPT_OPEN); index < settled; index += 1) {
      this.rounds[index].fold(ended || index < settled - KEPT_OPEN);
    }
    this.rounds[this.settled - 1]?.markLatest(false);
    if (!ended) this.rounds[settled - 1]?.markLatest(true, moving);
  }

  build(entries, wanted) {
    for (let index = this.rounds.length; index < wanted; index += 1) {
      const node = new RoundNode(entries[index], this.pieces, this.endOf(index - 1));
      node.markDiverged(this.divergence);
      this.rounds.push(node);
    }
  }

  /** The `end` of the text after round `index` (see `tokenSpan`). */
  endOf(index) {
    const node = this.rounds[index];
    return node ? { end: node.end, start: node.start + node.kept.length } : { end: undefined, start: 0 };
  }

  /** The number of tokens in the text. */
  get reach() {
    return this.endOf(this.settled - 1).start;
  }

  /** Adapt to line breaks that may have changed. */
  reflow() {
    this.rowKnown = null;
    this.sweep.clear();
    this.flow.forgetLines();
    this.flow.show(this.rounds, this.flow.shown, false);
    if (this.player) this.showPass(this.player); // no frame follows if the run is paused
  }

  /** Put all of the text into the page. */
  showAll() {
    this.flow.show(this.rounds, this.flow.shown, false);
  }

  /**
   * Mark all tokens from position `divergence` of the output, the first that differs from the target; null marks none.
   */
  markDivergence(divergence) {
    if (divergence === this.divergence) return;
    this.divergence = divergence;
    for (const node of this.rounds) node.markDiverged(divergence);
  }

  /** Outline a round and scroll to it. */
  select(index) {
    this.rounds[this.selected]?.element.removeAttribute("data-selected");
    this.selected = index;
    const node = index === null ? null : this.rounds[index];
    if (!node) return;
    node.element.setAttribute("data-selected", "");
    this.showAll();
    scrollToShow(this.box, node.element);
  }

  /** The result of `RoundNode.factsOf` for a span of any round. */
  factsOf(span) {
    return this.nodeOf(span)?.factsOf(span) ?? null;
  }

  /** Show or hide the discarded tokens that a tick stands for. */
  toggleTick(tick) {
    this.nodeOf(tick).element.toggleAttribute("data-opened");
  }

  nodeOf(span) {
    return this.rounds.find(({ element: round }) => round === span.parentElement);
  }

  /** The height of a row in px. */
  get row() {
    this.rowKnown ??= parseFloat(getComputedStyle(this.box).lineHeight);
    return this.rowKnown;
  }

  /** The height of the text in px, without the space below it. */
  get height() {
    return this.box.scrollHeight - this.spare;
  }

  /** Set the space below the text, so that the lane scrolls as far as a lane with a longer text. */
  setSpare(px) {
    if (px === this.spare) return;
    this.spare = px;
    this.box.style.paddingBottom = `${px}px`;
  }

  /** The `{ position, top }` of the first token that is at `top` px or below; null if there is none. */
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

  /** The top of the token at `position` of the text in px; null if it is not in the page. */
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

/** True if a round lasts long enough for its animation. */
function isUnhurried({ from, to }, player) {
  return player.playing && !sharesProcessor() && ((to - from) * 1000) / player.rate >= MIN_ANIMATED_MS;
}

/** The top of `inner` within the scrolled content of `box`, in px. */
function topIn(box, inner) {
  return inner.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop;
}

/** Scroll `box`, and nothing else, by whole rows until `inner` is visible. */
export function scrollToShow(box, inner) {
  const row = parseFloat(getComputedStyle(box).lineHeight);
  const from = topIn(box, inner);
  const top = Math.round(from / row) * row;
  const bottom = Math.round((from + inner.getBoundingClientRect().height) / row) * row;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - Math.floor(box.clientHeight / row) * row;
}
