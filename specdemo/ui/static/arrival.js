// The first ten seconds: who comes by a plain address sees a recorded run of the prompt that stands in the widgets.

import { element } from "./dom.js";
import { fetchRecording } from "./recordings.js";

const WORDS = "Recorded earlier. Press Run for your own.";

export class Arrival {
  /** `stage` can play a recording; `name` is that of the one to show. */
  constructor(stage, name) {
    this.stage = stage;
    this.name = name;
    this.notes = ["hint", "closing"].map((role) => [stage.roles[role], element("span", "sd-kept", WORDS)]);
  }

  /** Play it, unless the visitor is faster; it waits at its start where people want no movement. */
  async show() {
    const { stage, name } = this;
    if (!(await stage.toolbar.play(() => fetchRecording(stage.toolbar.base, name), name))) return;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) stage.player.pause();
    for (const [place, note] of this.notes) place.prepend(note, " ");
  }

  /** Another run is shown. */
  leave() {
    for (const [, note] of this.notes) note.remove();
  }
}
