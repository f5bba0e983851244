// One round in a lane: its draft, the target pass over it, the verdict, and the tokens that it adds to the text.

import { element } from "../common/dom.js";
import { sharesProcessor } from "./player.js";
import { tokenSpan } from "./tokens.js";
import { discardWords, ownStatus } from "../common/words.js";

/** The tokens of one round in reading order: accepted, rejected, the target's own, discarded. */
export class RoundNode {
  /** `end` (see `tokenSpan`) and `start`, a number of tokens, are those of the text before the round. */
  constructor(entry, pieces, { end, start }) {
    const { round } = entry;
    this.entry = entry;
    this.start = start;
    this.element = element("span", "sd-round");
    this.drafted = [];
    let ahead = end;
    this.end = end;
    for (const token of round.drafted) {
      const made = tokenSpan(token.id, ahead, pieces);
      ahead = made.end;
      if (token.status === "accepted") this.end = ahead;
      this.drafted.push(made.span);
    }
    this.emission = round.emission ? this.ownSpan(pieces) : null;
    this.visible = visibleCount(round.drafted, pieces.specials);
    this.endsText = pieces.specials.has(round.emission?.id); // the token that ends the text; nothing is shown after it
    this.upright = round.drafted.filter((token) => token.status === "accepted" || token.rejected).length;
    const own = this.emission ? [this.emission] : [];
    /** The spans that the round added to the text. */
    this.kept = [...this.drafted.filter((_, place) => round.drafted[place].status === "accepted"), ...own];
    this.element.append(...this.drafted.slice(0, this.upright), ...own, ...this.drafted.slice(this.upright));
    this.slots = [];
    this.settle();
  }

  ownSpan(pieces) {
    const { round } = this.entry;
    const { span, end } = tokenSpan(round.emission.id, this.end, pieces);
    this.end = end;
    const status = ownStatus(round);
    if (status) span.dataset.status = status;
    return span;
  }

  /**
   * Show the first `proposed` draft tokens, without verdicts. Each token has a slot; a round without a draft has one
   * slot.
   */
  pend(proposed, verifying) {
    this.isSettled = false;
    this.fold(false);
    this.markLatest(false, false);
    this.drafted.slice(0, this.visible).forEach((span, place) => {
      span.hidden = place >= proposed;
      span.dataset.status = "pending";
      delete span.dataset.rejected;
      span.toggleAttribute("data-verifying", verifying);
    });
    if (this.emission) this.emission.hidden = true;
    if (!this.slots.length) this.makeSlots();
    this.slots.forEach((slot, place) => (slot.hidden = place < proposed));
  }

  makeSlots() {
    this.slots = Array.from({ length: Math.max(1, this.visible) }, () => element("span", "sd-slot"));
    this.element.append(...this.slots);
  }

  /** Show every token with its verdict. */
  settle() {
    if (this.isSettled) return; // return early: scrubbing calls this for many rounds per frame
    this.isSettled = true;
    const shown = this.endsText ? Math.min(this.visible, this.upright) : this.visible;
    this.entry.round.drafted.forEach((token, place) => {
      const span = this.drafted[place];
      span.hidden = place >= shown;
      span.dataset.status = token.status;
      if (token.rejected) span.dataset.rejected = "true";
      span.removeAttribute("data-verifying");
    });
    if (this.emission) this.emission.hidden = false;
    for (const slot of this.slots.splice(0)) slot.remove();
  }

  /** Mark the round as the one with the latest verdict, or not; `moving` animates the verdict. */
  markLatest(latest, moving) {
    if (!latest) this.element.removeAttribute("data-latest");
    else if (!this.element.hasAttribute("data-latest")) this.element.dataset.latest = moving ? "moving" : "still";
  }

  /** Shrink the rejected and discarded tokens to a tick if `folded` is true, else show them in full. */
  fold(folded) {
    if (folded === this.element.hasAttribute("data-folded")) return;
    this.element.toggleAttribute("data-folded", folded);
    if (!folded) this.element.removeAttribute("data-opened");
    else if (!this.tick && discardWords(this.entry.round)) this.makeTick();
  }

  makeTick() {
    this.tick = element("span", "sd-tick");
    this.tick.setAttribute("role", "img");
    this.tick.setAttribute("aria-label", discardWords(this.entry.round));
    this.element.insertBefore(this.tick, this.element.children[this.upright] ?? null);
  }

  markDiverged(divergence) {
    // The index of the round is also the position of its token: lanes that can differ add one token per round.
    const { index } = this.entry.round;
    this.element.toggleAttribute("data-diverged", divergence !== null && index >= divergence);
    this.element.toggleAttribute("data-diverges", divergence !== null && index === divergence);
  }

  /**
   * The `{ entry, token, place }` of a span: its round, its token and the index of the token in the draft. For the target's
   * own token `place` is null; for the tick, `token` is null as well.
   */
  factsOf(span) {
    const { entry } = this;
    if (span === this.tick) return { entry, token: null, place: null };
    if (span === this.emission) return { entry, token: entry.round.emission, place: null };
    const place = this.drafted.indexOf(span);
    return { entry, token: entry.round.drafted[place], place };
  }
}

/**
 * The number of visible draft tokens. Tokens drafted after the end of the text, which are not compared, are
 * invisible.
 */
function visibleCount(drafted, specials) {
  const end = drafted.findIndex(({ id }) => specials.has(id));
  const vain = drafted.findIndex(({ status, compared }, place) => place > end && status === "discarded" && !compared);
  return end < 0 || vain < 0 ? drafted.length : vain;
}

const MIN_SWEEP_MS = 60; // a shorter pass would only flicker
const MAX_DRIFT_MS = 90; // the maximum difference between the animation and the clock
const LABEL_PX = 84;

/** The target pass over a round: a bar that moves over all of its tokens while the pass lasts. */
export class Sweep {
  constructor() {
    this.node = null;
  }

  /**
   * Show the pass over a `RoundNode` at the time of `player`; a null node shows none. The start of a pass costs a
   * layout.
   */
  show(node, box, player) {
    const length = node && (1000 * node.entry.round.verify_s) / player.rate;
    if (!node || length < MIN_SWEEP_MS) return this.clear();
    if (node !== this.node) this.begin(node, box);
    this.keepTime(((player.time - node.entry.draftEnd) * 1000) / player.rate, length, player.playing);
  }

  clear() {
    if (!this.node) return;
    this.node = null;
    for (const strip of this.strips) strip.remove();
  }

  // Adds one strip per line of the round. A strip is positioned inside the round, so that it moves with the text.
  begin(node, box) {
    this.clear();
    this.node = node;
    const rects = [...node.element.getClientRects()].filter(({ width }) => width > 0);
    const { left, right } = box.getBoundingClientRect();
    const [first, last] = [rects[0], rects.at(-1)];
    const isRight = getComputedStyle(box).direction === "rtl";
    this.strips = rects.map((rect) => {
      const strip = element("span", "sd-sweep", element("span", "sd-sweep-track", element("i")));
      const start = isRight ? `right:${first.right - rect.right}px` : `left:${rect.left - first.left}px`;
      strip.style.cssText = `${start};top:${rect.top - first.top}px;width:${rect.width}px;height:${rect.height}px`;
      strip.toggleAttribute("data-label", rect === last && (isRight ? rect.left - left : right - rect.right) > LABEL_PX);
      return strip;
    });
    node.element.append(...this.strips);
    const frames = [{ transform: `translateX(${isRight ? "" : "-"}100%)` }, { transform: "none" }];
    const still = sharesProcessor() || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const moved = still ? [] : this.strips;
    this.animations = moved.map((strip) => strip.firstChild.firstChild.animate(frames, { duration: 1, fill: "both" }));
  }

  keepTime(passed, length, running) {
    for (const animation of this.animations) {
      animation.effect.updateTiming({ duration: length });
      const at = Math.min(Math.max(0, passed), length);
      if (!running || Math.abs(Math.min(animation.currentTime, length) - at) > MAX_DRIFT_MS) animation.currentTime = at;
      if (!running) animation.pause();
      else if (animation.playState === "paused") animation.play();
    }
  }
}
