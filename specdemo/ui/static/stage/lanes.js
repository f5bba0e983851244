// The text of one lane at any moment of a trace. Each round is built once; later it is only shown, hidden or changed.

import { element } from "../common/dom.js";
import { RoundFlow } from "./lane_scroll.js";
import { RoundNode } from "./round_node.js";
import { fill } from "./tokens.js";


export class LaneView {
  constructor(article, pieces) {
    this.article = article;
    this.box = article.querySelector(".sd-text");
    this.flow = new RoundFlow(this.box);
    this.following = true; // LaneScroll changes it
    this.spare = 0;
    this.clear(pieces);
  }

  clear(pieces) {
    this.pieces = pieces;
    this.flow.clear();
    this.rounds = []; // every RoundNode built so far
    this.settled = 0; // the number of rounds that show their verdict
    this.isOpen = false; // true while the latest verdict shows all of its tokens
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

  /** Draw the lane in the state of `LaneTrace.stateAt`. */
  show(entries, { settled, proposed, verifying, ended }) {
    const wanted = settled + (proposed || verifying ? 1 : 0);
    const firstChanged = Math.min(this.settled, settled);
    this.build(entries, wanted);
    this.flow.show(this.rounds, wanted, this.following);
    for (let index = firstChanged; index < settled; index += 1) this.rounds[index].settle();
    const isOpen = !ended && wanted === settled;
    if (settled !== this.settled || isOpen !== this.isOpen) this.foldOld(firstChanged, settled, isOpen);
    if (wanted > settled) this.rounds[settled].pend(proposed, verifying);
    this.settled = settled;
    this.isOpen = isOpen;
  }

  // Only the latest verdict shows its rejected and discarded tokens, until the next round goes on or the lane ends.
  foldOld(firstChanged, settled, isOpen) {
    this.rounds[this.settled - 1]?.markLatest(false);
    for (let index = Math.max(0, firstChanged - 1); index < settled; index += 1) this.rounds[index].fold(!isOpen || index < settled - 1);
    if (isOpen) this.rounds[settled - 1]?.markLatest(true);
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
    this.flow.forgetLines();
    this.flow.show(this.rounds, this.flow.shown, false);
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
