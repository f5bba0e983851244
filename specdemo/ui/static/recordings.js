// Runs that were made earlier: shipped recordings, trace files, and the last run that this browser stored.

import { element, forget, recall, remember } from "./dom.js";
import { linkTo } from "./share.js";

const PATH = "../specdemo-traces";
// What the server takes at most; it hangs up on more, and a browser would then not show why.
const MOST_BYTES = 16_000_000;

/** Shipped recordings: name, title, about, device, pair and figures of each; none where there is no server. */
export async function listRecordings(base) {
  const response = await fetch(new URL(PATH, base));
  return response.ok ? response.json() : [];
}

/** Events of a shipped recording as NDJSON. */
export async function fetchRecording(base, name) {
  return eventsFrom(await fetch(new URL(`${PATH}/${encodeURIComponent(name)}`, base)));
}

/** Events of a trace file as NDJSON. */
export async function openTrace(base, file) {
  if (file.size > MOST_BYTES) throw new Error(`The file is too large; a trace has at most ${MAX_TRACE_BYTES.toLocaleString("en")} bytes.`);
  return eventsFrom(await fetch(new URL(PATH, base), { method: "POST", body: file }));
}

async function eventsFrom(response) {
  if (response.ok) return response.text();
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `The server could not be asked for the run (status ${response.status}).`);
}

const ARRIVAL_WORDS = "Recorded earlier. Press Run for your own.";

export class Arrival {
  /** `stage` can play a recording; `name` is that of the one to show. */
  constructor(stage, name) {
    this.stage = stage;
    this.name = name;
    this.notes = ["hint", "closing"].map((role) => [stage.roles[role], element("span", "sd-kept", ARRIVAL_WORDS)]);
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

const LAST_RUN_KEY = "specdemo-last-run";
// Browsers grant a page about five million characters; a longer run is not kept.
const MAX_RUN_CHARACTERS = 2_000_000;

/** Keep a finished run's events in place of those of the run before. */
export function keepRun(events) {
  forget(LAST_RUN_KEY); // whatever becomes of this one, the one before is not the last any more
  const text = events.map((event) => JSON.stringify(event)).join("\n");
  if (text.length <= MAX_RUN_CHARACTERS) remember(LAST_RUN_KEY, text);
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
    const text = recall(LAST_RUN_KEY);
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
    forget(LAST_RUN_KEY);
    this.stage.begin();
  }
}

const REUSE_WORDS = "Use its prompt and settings";

export class Reuse {
  constructor(roles) {
    this.links = ["hint", "closing"].map((role) => [roles[role], element("a", "sd-reuse", REUSE_WORDS)]);
  }

  /** A finished run is shown that was made elsewhere or earlier. */
  offer(run) {
    for (const [place, link] of this.links) {
      link.href = linkTo(location.href, run, null);
      place.append(" ", link);
    }
  }

  /** Another run is shown. */
  leave() {
    for (const [, link] of this.links) link.remove();
  }
}
