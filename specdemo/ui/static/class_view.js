// The teacher's view of a run on a student's stage: clock, pace and opened round, while the student follows.

import { commandOf } from "./keys.js";

const MAX_DRIFT_S = 0.7; // of real time; less is the network's delay
const NO_DRIFT_S = 1e-6;
const CONTROLS = ".sd-replay, .sd-microscope, .sd-live, .sd-text, .sd-plots";

export class TeachersView {
  /** `onLeave` is called when the student uses a control of the run. */
  constructor(stage, onLeave) {
    this.stage = stage;
    this.onLeave = onLeave;
    this.follows = true;
    this.latest = null;
    const used = (event) => event.isTrusted && event.target.closest(CONTROLS) && this.leave();
    for (const kind of ["click", "input"]) stage.root.addEventListener(kind, used, true);
    document.addEventListener("keydown", (event) => this.key(event), true);
  }

  key(event) {
    const command = event.isTrusted ? commandOf(event) : undefined;
    const walks = ["Enter", "ArrowLeft", "ArrowRight"].includes(event.key) && event.target.closest?.(CONTROLS);
    if ((command && command !== "help") || walks) this.leave();
  }

  leave() {
    if (!this.follows) return;
    this.follows = false;
    this.onLeave();
  }

  /** Another run begins, and everybody follows it. */
  begin() {
    this.follows = true;
    this.latest = null;
  }

  follow() {
    this.follows = true;
    if (this.latest) this.apply(this.latest);
  }

  take(view) {
    this.latest = { ...view, at: performance.now() };
    if (this.follows) this.apply(this.latest);
  }

  apply({ time, playing, pace, round, at }) {
    const { player, selection, transport, trace } = this.stage;
    if (String(transport.pace) !== pace) transport.setPace(pace);
    const shown = selection.microscope.open ? selection.index : null;
    const isWriting = document.activeElement?.closest(".sd-asked"); // the page must not move now
    if (round !== shown && !isWriting) {
      if (round === null) selection.clear();
      else selection.open(round);
    }
    const passed = playing ? ((performance.now() - at) / 1000) * player.rate : 0;
    const target = Math.min(time + passed, trace.frontier());
    if (!playing) player.pause();
    if (Math.abs(player.time - target) > (playing ? MAX_DRIFT_S * player.rate : NO_DRIFT_S)) player.seek(target);
    if (playing && !player.playing && !player.atEnd) player.play();
  }
}
