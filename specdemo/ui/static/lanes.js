// One decoder's text at any moment of a trace: rounds are built once, then put in, taken out and flipped.

import { RoundFlow } from "./flow.js";
import { fill } from "./tokens.js";
import { ownStatus } from "./words.js";

const NEAR_END_PX = 48;

export class LaneView {
  constructor(article, pieces) {
    this.article = article;
    this.box = article.querySelector(".sd-text");
    this.pieces = pieces;
    this.flow = new RoundFlow(this.box);
    this.box.addEventListener("scroll", () => this.noteScroll(), { passive: true });
    new ResizeObserver(() => this.reflow()).observe(this.box);
    this.clear(pieces);
  }

  /** Empty, for another run. */
  clear(pieces) {
    this.pieces = pieces;
    this.flow.clear();
    this.rounds = []; // every RoundNode built so far
    this.tail = undefined; // bytes of a character that the built text has begun but not finished
    this.settled = 0; // how many of them have their verdict
    this.departure = null;
    this.selected = null;
    this.following = true;
  }

  setPrompt(text, mode) {
    const prompt = document.createElement("span");
    prompt.className = "sd-prompt";
    prompt.dataset.mode = mode;
    fill(prompt, text, false);
    if (mode === "chat") prompt.title = text;
    this.flow.setHead(prompt);
  }

  /** Draw the lane as it is in `state` (see `LaneTrace.stateAt`). */
  show(entries, { settled, proposed, verifying }) {
    const wanted = settled + (proposed ? 1 : 0);
    const firstChanged = Math.min(this.settled, settled);
    this.build(entries, wanted);
    this.flow.show(this.rounds, wanted, this.following);
    for (let index = firstChanged; index < settled; index += 1) this.rounds[index].settle();
    if (proposed) this.rounds[settled].pend(proposed, verifying);
    this.settled = settled;
  }

  /** Keep the end in sight. Apart from `show`, since it costs a layout: all lanes should have changed before. */
  follow() {
    if (this.following) this.box.scrollTop = 1e9;
  }

  build(entries, wanted) {
    for (let index = this.rounds.length; index < wanted; index += 1) {
      const node = new RoundNode(entries[index], this.pieces, this.tail);
      this.tail = node.tail;
      node.markDeparted(this.departure);
      this.rounds.push(node);
    }
  }

  /** Lines may break elsewhere: another width, another size of letters, discarded tokens hidden. */
  reflow() {
    this.flow.forgetLines();
    this.flow.show(this.rounds, this.flow.shown, false);
    if (this.following) this.box.scrollTop = 1e9;
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
    this.flow.show(this.rounds, this.flow.shown, false);
    scrollToShow(this.box, node.element);
  }

  /** `{ entry, token, place }` of a span of this lane; `place` is null for the target's own token. */
  factsOf(span) {
    const index = this.rounds.findIndex((node) => node.element === span.parentElement);
    return index < 0 ? null : this.rounds[index].factsOf(span);
  }

  spanOf(index, place) {
    const node = this.rounds[index];
    return place === null ? node?.emission : node?.drafted[place];
  }

  noteScroll() {
    const { box } = this;
    this.following = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
    if (!this.following) this.flow.show(this.rounds, this.flow.shown, false);
  }
}

/** Scroll `box` (and nothing else) so that `inner` is seen, by whole rows of text. */
export function scrollToShow(box, inner) {
  const row = parseFloat(getComputedStyle(box).lineHeight);
  const top = Math.floor(inner.offsetTop / row) * row;
  const bottom = Math.ceil((inner.offsetTop + inner.offsetHeight) / row) * row;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - Math.floor(box.clientHeight / row) * row;
}

/** The tokens of one round in reading order: accepted, rejected, the target's own, what fell with the draft. */
class RoundNode {
  constructor(entry, pieces, before) {
    const { round } = entry;
    this.entry = entry;
    this.element = document.createElement("span");
    this.element.className = "sd-round";
    this.drafted = [];
    let tail = before;
    let kept = before;
    for (const token of round.drafted) {
      const made = tokenSpan(token.id, tail, pieces);
      tail = made.tail;
      if (token.status === "accepted") kept = tail;
      this.drafted.push(made.span);
    }
    this.tail = kept;
    this.emission = null;
    const ahead = round.drafted.filter((token) => token.status === "accepted" || token.rejected).length;
    this.element.append(...this.drafted.slice(0, ahead));
    if (round.emission) {
      const made = tokenSpan(round.emission.id, kept, pieces);
      this.emission = made.span;
      this.tail = made.tail;
      const status = ownStatus(round);
      if (status) made.span.dataset.status = status;
      this.element.append(made.span);
    }
    this.element.append(...this.drafted.slice(ahead));
    this.settle();
  }

  /** The draft so far, without a verdict. */
  pend(proposed, verifying) {
    this.isSettled = false;
    this.drafted.forEach((span, place) => {
      span.hidden = place >= proposed;
      span.dataset.status = "pending";
      delete span.dataset.rejected;
      span.toggleAttribute("data-verifying", verifying);
    });
    if (this.emission) this.emission.hidden = true;
  }

  /** Every token with what became of it. */
  settle() {
    if (this.isSettled) return; // scrubbing passes many rounds a frame
    this.isSettled = true;
    this.entry.round.drafted.forEach((token, place) => {
      const span = this.drafted[place];
      span.hidden = false;
      span.dataset.status = token.status;
      if (token.rejected) span.dataset.rejected = "true";
      span.removeAttribute("data-verifying");
    });
    if (this.emission) this.emission.hidden = false;
  }

  markDeparted(departure) {
    const { index } = this.entry.round; // lanes that can depart emit one token a round
    this.element.toggleAttribute("data-departed", departure !== null && index >= departure);
    this.element.toggleAttribute("data-departs", departure !== null && index === departure);
  }

  factsOf(span) {
    const place = span === this.emission ? null : this.drafted.indexOf(span);
    const token = place === null ? this.entry.round.emission : this.entry.round.drafted[place];
    return { entry: this.entry, token, place };
  }
}

/** A token as a span, and the bytes of a character that it leaves open. */
export function tokenSpan(id, before, pieces) {
  const { text, tail } = pieces.decode(id, before);
  const span = document.createElement("span");
  span.className = "sd-token";
  fill(span, text, pieces.specials.has(id));
  return { span, tail };
}
