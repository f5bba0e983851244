// Pointing at tokens: hover or arrow keys show the tooltip, a click or Enter pins it and selects the round.
// At the tick that stands for discarded tokens, click and Enter show them in the text.

import { scrollToShow } from "./lanes.js";

const TICK = ".sd-tick";
const SPOTS = `.sd-token, ${TICK}`;

export class TokenInspector {
  /**
   * `views`: lane views by name. `describe(span, facts)` shows the tooltip, `choose(facts)` selects the token's round,
   * `unfold(view, tick)` shows or shrinks what a tick stands for.
   */
  constructor(views, tip, { describe, choose, unfold }) {
    this.tip = tip;
    this.describe = describe;
    this.choose = choose;
    this.unfold = unfold;
    this.current = null;
    this.walkedTo = null;
    for (const view of Object.values(views)) this.watch(view);
  }

  watch(view) {
    const { box } = view;
    const tokenAt = (event) => event.target.closest?.(SPOTS);
    box.addEventListener("pointerover", (event) => {
      const span = tokenAt(event);
      if (span && !this.tip.pinned && event.pointerType !== "touch") this.point(view, span);
    });
    box.addEventListener("pointerleave", () => this.leave());
    box.addEventListener("blur", () => this.leave());
    box.addEventListener("scroll", () => this.scrolled(box), { passive: true });
    box.addEventListener("click", (event) => {
      const span = tokenAt(event);
      if (span) this.press(view, span);
    });
    box.addEventListener("keydown", (event) => this.key(view, event));
  }

  point(view, span) {
    const facts = view.factsOf(span);
    if (!facts) return;
    this.current?.removeAttribute("data-pointed");
    this.current = span;
    span.setAttribute("data-pointed", "");
    this.describe(span, facts);
  }

  press(view, span) {
    if (!span.matches(TICK)) return this.pin(view, span);
    this.clear();
    this.unfold(view, span);
  }

  // Choosing first: a token that was still pending gets its verdict by it.
  pin(view, span) {
    this.tip.hide();
    const facts = view.factsOf(span);
    if (facts) this.choose(facts);
    this.point(view, span);
    this.tip.pin();
  }

  // Walking by keys scrolls as well, and must not lose its place by it.
  scrolled(box) {
    if (box.contains(this.current) && box.scrollTop !== this.walkedTo) this.leave();
  }

  leave() {
    if (!this.tip.pinned) this.clear();
  }

  clear() {
    this.tip.hide();
    this.current?.removeAttribute("data-pointed");
    this.current = null;
  }

  key(view, event) {
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter" && this.current) return this.press(view, this.current);
    if (!direction) return;
    event.preventDefault();
    const tokens = [...view.box.querySelectorAll(SPOTS)].filter((token) => token.getClientRects().length);
    if (!tokens.length) return;
    const at = tokens.indexOf(this.current);
    const next = at < 0 ? tokens.at(direction > 0 ? 0 : -1) : tokens[at + direction];
    if (!next) return;
    this.tip.hide();
    scrollToShow(view.box, next);
    this.walkedTo = view.box.scrollTop;
    this.point(view, next);
  }
}
