// The teacher's view of a run, on a student's stage: clock, pace and opened round, for as long as the student follows.

import { commandOf } from "./keys.js";

const MOST_APART_S = 0.7; // of real time; less is the network's
const OWN_WAYS = ".sd-replay, .sd-microscope, .sd-live, .sd-text, .sd-plots";
const NEARLY_S = 1e-6;

export class TeachersView {
  /** `onLeave` is called when the student does something of their own with the run. */
  constructor(stage, { onLeave }) {
    this.stage = stage;
    this.onLeave = onLeave;
    this.follows = true;
    this.latest = null;
    const own = (event) => event.isTrusted && event.target.closest(OWN_WAYS) && this.leave();
    for (const kind of ["click", "input"]) stage.root.addEventListener(kind, own, true);
    document.addEventListener("keydown", (event) => this.key(event), true);
  }

  key(event) {
    const command = event.isTrusted ? commandOf(event) : undefined;
    const walks = ["Enter", "ArrowLeft", "ArrowRight"].includes(event.key) && event.target.closest?.(OWN_WAYS);
    if ((command && command !== "help") || walks) this.leave();
  }

  leave() {
    if (!this.follows) return;
    this.follows = false;
    this.onLeave();
  }

  /** Another run is shown; how it is looked at is told next. */
  begin() {
    this.follows = true;
    this.latest = null;
  }

  /** Back to what the teacher shows. */
  come() {
    this.follows = true;
    if (this.latest) this.apply(this.latest);
  }

  take(view) {
    this.latest = { ...view, at: performance.now() };
    if (this.follows) this.apply(this.latest);
  }

  apply({ time, playing, pace, round, at }) {
    const { player, selection, transport } = this.stage;
    if (String(transport.pace) !== pace) transport.setPace(pace);
    const shown = selection.microscope.open ? selection.index : null;
    const isWriting = document.activeElement?.closest(".sd-asked"); // the page must not move then
    if (round !== shown && !isWriting) {
      if (round === null) selection.clear();
      else selection.open(round);
    }
    const passed = playing ? ((performance.now() - at) / 1000) * player.rate : 0;
    const there = Math.min(time + passed, this.stage.trace.frontier());
    const most = playing ? MOST_APART_S * player.rate : NEARLY_S;
    if (!playing) player.pause();
    if (Math.abs(player.time - there) > most) player.seek(there);
    if (playing && !player.playing && !player.atEnd) player.play();
  }
}
