// Pointing at tokens and selecting a round. The tooltip, strip, charts and microscope all show the selected round.

import { button, element } from "../common/dom.js";
import { scrollToShow } from "./lanes.js";
import { Microscope } from "./microscope.js";
import { RoundStrip } from "./strip.js";
import { fillLabel } from "./tokens.js";
import { DRAFT, SPECULATIVE } from "./trace.js";
import { discardWords, emissionWords, MODELS, ownStatus, roundWords, statusName, tokenFigures, verdictWords } from "../common/words.js";

export class Selection {
  constructor(stage) {
    this.stage = stage;
    this.index = null;
    this.since = 0; // the time from which the selected round is shown
    const { root, roles } = stage;
    this.tip = new Tip(roles.tip, root);
    this.strip = new RoundStrip(roles.rounds, {
      onOpen: (index) => this.open(index),
      onHover: (index, event) => this.hintRound(index, event),
    });
    this.microscope = new Microscope(roles.microscope, {
      onClose: () => this.closeMicroscope(),
      onStep: (direction) => this.openNeighbour(direction),
    });
    this.inspector = new TokenInspector(stage.lanes, this.tip, {
      describe: (span, facts) => this.describe(span, facts),
      choose: (facts) => this.choose(facts),
      unfold: (view, tick) => {
        view.toggleTick(tick);
        stage.reflow();
      },
    });
    root.addEventListener("keydown", (event) => this.escape(event));
  }

  get entries() {
    return this.stage.trace.entries(SPECULATIVE);
  }

  describe(span, facts) {
    if (this.microscope.open) return this.tip.hide(); // it would cover the microscope, whose cards say the same
    const { rule, pieces } = this.stage;
    if (!facts.token) return this.tip.showDiscards(span, facts.entry.round, pieces);
    const openRound = () => {
      this.open(facts.entry.round.index, facts.place ?? "own");
      this.microscope.cards.focus({ preventScroll: true }); // the button is gone
    };
    this.tip.showToken(span, facts, rule, pieces, openRound);
  }

  hintRound(index, event) {
    if (this.tip.pinned) return;
    if (index === null) this.tip.hide();
    else this.tip.showWords(roundWords(this.entries[index].round), event);
  }

  /** Select the round of a token. If the microscope is open, it shows this round. */
  choose({ entry, place }) {
    if (entry.lane !== SPECULATIVE) return;
    if (this.microscope.open) this.open(entry.round.index, place ?? "own");
    else this.select(entry.round.index);
  }

  /** Select a round, and play up to it if it has not been played; returns its entry, or null if there is none. */
  select(index) {
    const entry = this.entries[index];
    if (!entry) return null;
    const { player } = this.stage;
    player.pause();
    if (player.time < entry.to) player.seek(entry.to);
    this.since = Math.min(entry.to, player.time); // a run that goes on may not have played all of the round
    this.mark(index);
    return entry;
  }

  /** Open a round in the microscope. If `place` is given, the token with this index in the draft is marked. */
  open(index, place) {
    const entry = this.select(index);
    if (!entry) return;
    const { root, roles, rule, pieces, lanes, scroll } = this.stage;
    this.inspector.clear();
    scroll.hold(true);
    root.setAttribute("data-inspecting", "");
    this.microscope.show(entry, rule, pieces, place);
    lanes[SPECULATIVE].select(index); // scroll again, because the open microscope has made the lane lower
    roles.microscope.scrollIntoView({ block: "nearest" });
    this.stage.tell();
  }

  openNeighbour(direction) {
    this.open(Math.min(this.entries.length - 1, Math.max(0, this.index + direction)));
  }

  closeMicroscope() {
    this.clear();
    this.stage.roles.rounds.focus();
  }

  clear() {
    this.inspector.clear();
    this.microscope.hide();
    this.stage.root.removeAttribute("data-inspecting");
    this.stage.scroll.hold(false);
    this.mark(null);
  }

  /** Close what is about a round or a token that is no longer shown at `time`. */
  follow(time) {
    if (this.index !== null && time < this.since) this.clear();
    this.inspector.follow();
  }

  mark(index) {
    this.index = index;
    this.strip.select(index);
    this.stage.plots.select(index);
    this.stage.lanes[SPECULATIVE].select(index);
  }

  escape(event) {
    if (event.key !== "Escape") return;
    if (!this.tip.node.hidden) this.inspector.clear();
    else if (this.microscope.open) this.closeMicroscope();
  }
}

const TICK = ".sd-tick";
const SPOTS = `.sd-token, ${TICK}`;

/**
 * Pointing at tokens. The pointer or the arrow keys show the tooltip; a click or Enter pins it and selects the round. At
 * a tick, a click or Enter shows the rejected and discarded tokens in the text.
 */
class TokenInspector {
  /**
   * `views` are the lane views by name. `describe(span, facts)` shows the tooltip, `choose(facts)` selects the token's
   * round, and `unfold(view, tick)` shows or hides the discarded tokens of a tick.
   */
  constructor(views, tip, { describe, choose, unfold }) {
    this.tip = tip;
    this.describe = describe;
    this.choose = choose;
    this.unfold = unfold;
    this.current = null;
    this.view = null; // that of the current span
    this.status = undefined; // that of the current span when it was described
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
    this.view = view;
    this.status = span.dataset.status;
    span.setAttribute("data-pointed", "");
    this.describe(span, facts);
  }

  /** Describe the current token again if its verdict has come or gone; clear it if it is no longer shown. */
  follow() {
    const { current, view } = this;
    if (!current) return;
    if (!current.getClientRects().length) this.clear();
    else if (current.dataset.status !== this.status) this.point(view, current);
  }

  press(view, span) {
    if (!span.matches(TICK)) return this.pin(view, span);
    this.clear();
    this.unfold(view, span);
  }

  // Call `choose` first: if the verdict of the token is pending, it plays up to the verdict.
  pin(view, span) {
    this.tip.hide();
    const facts = view.factsOf(span);
    if (facts) this.choose(facts);
    this.point(view, span);
    this.tip.pin();
  }

  // Closes the tooltip, except if an arrow key caused the scrolling.
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

/** The tooltip of a token or a round. */
class Tip {
  constructor(node, root) {
    this.node = node;
    this.root = root;
    this.pinned = false;
  }

  /** Show the verdict of a token next to its `span`. The `facts` are those of `RoundNode.factsOf`. */
  showToken(span, facts, rule, pieces, onOpen) {
    const { round } = facts.entry;
    const pending = span.dataset.status === "pending";
    const own = facts.place === null;
    const label = element("b", "sd-card-token");
    fillLabel(label, facts.token.id, pieces);
    const status = pending ? "pending" : own ? ownStatus(round) || "target's own" : statusName(facts.token);
    const lane = facts.entry.lane === SPECULATIVE ? `${status} · round ${round.index + 1}` : `token ${round.index + 1}`;
    const model = MODELS[facts.entry.lane === DRAFT ? "draft" : "target"];
    const words = own ? emissionWords(facts.token, round, rule, model) : verdictWords(facts.token, round, rule);
    const body = [element("p", "", pending ? "Proposed, not verified yet." : words)];
    const figures = own || pending ? [] : tokenFigures(facts.token, round, rule);
    const line = figures.map(([name, value]) => `${name} ${value}`).join(" · ");
    if (line) body.push(element("p", "sd-tip-figures", line));
    if (facts.entry.lane === SPECULATIVE) body.push(button("sd-button", `Open round ${round.index + 1}`, onOpen));
    this.node.replaceChildren(element("p", "sd-tip-head", label, element("span", "", lane)), ...body);
    this.node.dataset.kind = "token";
    this.placeBy(span.getClientRects()[0] ?? span.getBoundingClientRect());
  }

  /** Show the rejected and discarded tokens of `round` next to its tick. */
  showDiscards(tick, round, pieces) {
    const discarded = round.drafted.filter(({ status }) => status === "discarded");
    const words = discarded.map(({ id, rejected }) => {
      const label = element("b", "sd-card-token");
      fillLabel(label, id, pieces);
      label.dataset.status = "discarded";
      if (rejected) label.dataset.rejected = "true";
      return label;
    });
    const open = tick.parentElement.hasAttribute("data-opened");
    const hint = element("p", "", open ? "Click to hide these tokens." : "Click to show these tokens in the text.");
    const head = element("p", "sd-tip-head", element("span", "", `${discardWords(round)} · round ${round.index + 1}`));
    this.node.replaceChildren(head, element("p", "sd-tip-discards", ...words), hint);
    this.node.dataset.kind = "discards";
    this.placeBy(tick.getBoundingClientRect());
  }

  /** Show a sentence at the pointer. */
  showWords(words, { clientX, clientY }) {
    this.node.replaceChildren(element("p", "", words));
    this.node.dataset.kind = "words";
    this.placeBy({ left: clientX, right: clientX, top: clientY - 12, bottom: clientY + 12 });
  }

  pin() {
    this.pinned = true;
    this.node.dataset.pinned = "true";
  }

  hide() {
    this.pinned = false;
    delete this.node.dataset.pinned;
    this.node.hidden = true;
  }

  // Places the tooltip below the token if it fits there, else above; always within the stage.
  placeBy(rect) {
    const { node } = this;
    node.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const left = Math.min(Math.max(rect.left, frame.left), frame.right - node.offsetWidth);
    const below = rect.bottom + 6;
    const above = rect.top - node.offsetHeight - 6;
    const top = below + node.offsetHeight <= window.innerHeight || above < 0 ? below : above;
    node.style.left = `${Math.max(0, left - frame.left)}px`;
    node.style.top = `${top - frame.top}px`;
  }
}
