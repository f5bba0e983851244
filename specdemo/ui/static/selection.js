// One round is selected at a time, and text, strip, charts and microscope all show which.

import { PHONE_PX } from "./dom.js";
import { TokenInspector } from "./inspect.js";
import { Microscope } from "./microscope.js";
import { RoundStrip } from "./strip.js";
import { Tip } from "./tip.js";
import { SPECULATIVE } from "./trace.js";
import { roundWords } from "./words.js";

export class Selection {
  /** `stage` has the run at hand: trace, player, pieces, rule, lanes, plots, roles. */
  constructor(stage) {
    this.stage = stage;
    this.index = null;
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
    if (this.microscope.open && innerWidth <= PHONE_PX) return this.tip.hide(); // it would cover what says the same
    const { rule, pieces } = this.stage;
    if (!facts.token) return this.tip.showDiscards(span, facts.entry.round, pieces);
    const openRound = () => this.open(facts.entry.round.index, facts.place ?? "own");
    this.tip.showToken(span, facts, rule, pieces, openRound);
  }

  hintRound(index, event) {
    if (this.tip.pinned) return;
    if (index === null) this.tip.hide();
    else this.tip.showWords(roundWords(this.entries[index].round), event);
  }

  /** Select a token's round; what is open follows. */
  choose({ entry, place }) {
    if (entry.lane !== SPECULATIVE) return;
    if (this.microscope.open) this.open(entry.round.index, place ?? "own");
    else this.select(entry.round.index);
  }

  /** Select a round; one that has not been played yet is played first. Gives its entry, or null if there is none. */
  select(index) {
    const entry = this.entries[index];
    if (!entry) return null;
    const { player } = this.stage;
    player.pause();
    if (player.time < entry.to) player.seek(entry.to);
    this.mark(index);
    return entry;
  }

  /** Put a round under the microscope, pointing at one of its tokens where `place` says which. */
  open(index, place) {
    const entry = this.select(index);
    if (!entry) return;
    const { root, roles, rule, pieces, lanes } = this.stage;
    if (place === undefined) this.inspector.clear();
    root.setAttribute("data-inspecting", "");
    this.microscope.show(entry, rule, pieces, place);
    lanes[SPECULATIVE].select(index); // again: the lane has become lower
    roles.microscope.scrollIntoView({ block: "nearest" });
    this.stage.tell();
  }

  openNeighbour(direction) {
    this.open(Math.min(this.entries.length - 1, Math.max(0, this.index + direction)));
  }

  /** Back to the strip it was opened from. */
  closeMicroscope() {
    this.clear();
    this.stage.roles.rounds.focus();
  }

  clear() {
    this.inspector.clear();
    this.microscope.hide();
    this.stage.root.removeAttribute("data-inspecting");
    this.mark(null);
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
