// The last run of this browser, kept in its storage so that a reload does not lose it; off where storage is refused.

import { element } from "./dom.js";
import { forget, recall, remember } from "./memory.js";

const KEY = "specdemo-last-run";
// Browsers grant a page about five million characters; a longer run is not kept.
const MOST_CHARACTERS = 2_000_000;

/** Keep a finished run's events in place of those of the run before. */
export function keepRun(events) {
  forget(KEY); // whatever becomes of this one, the one before is not the last any more
  const text = events.map((event) => JSON.stringify(event)).join("\n");
  if (text.length <= MOST_CHARACTERS) remember(KEY, text);
}

export class LastRun {
  /** `stage` can load a run, or begin without one. */
  constructor(stage) {
    this.stage = stage;
    const drop = element("button", "sd-opener", "forget it");
    drop.type = "button";
    drop.addEventListener("click", () => this.drop());
    this.note = element("span", "sd-kept", "Your last run (", drop, ")");
    this.note.title = "kept in this browser only";
  }

  /** Show the run that was kept at its end, marked as such; gives whether there is one. */
  show() {
    const text = recall(KEY);
    if (!text) return false;
    const { stage } = this;
    try {
      stage.load(text, null);
      stage.player.seekEnd();
    } catch {
      this.drop(); // of another version of the page, or spoilt
      return false;
    }
    stage.root.dataset.kept = "true";
    stage.roles.closing.prepend(this.note);
    return true;
  }

  /** Another run is shown. */
  leave() {
    delete this.stage.root.dataset.kept;
    this.note.remove();
  }

  drop() {
    forget(KEY);
    this.stage.begin();
  }
}
