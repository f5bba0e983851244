// One round in a lane: its draft, the verdict, and the tokens that it adds to the text.

import { element } from "../common/dom.js";
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

  /** Show the first `proposed` draft tokens, without verdicts. */
  pend(proposed, verifying) {
    this.isSettled = false;
    this.fold(false);
    this.markLatest(false);
    this.drafted.slice(0, this.visible).forEach((span, place) => {
      span.hidden = place >= proposed;
      span.dataset.status = "pending";
      delete span.dataset.rejected;
      span.toggleAttribute("data-verifying", verifying);
    });
    if (this.emission) this.emission.hidden = true;
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
  }

  /** Mark the round as the one with the latest verdict, or not. */
  markLatest(latest) {
    this.element.toggleAttribute("data-latest", latest);
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
