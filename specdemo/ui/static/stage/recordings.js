// Finished runs: built-in recordings, trace files, and the last run, which this browser has stored.

import { button, element, forget, recall, remember } from "../common/dom.js";
import { linkTo } from "./share.js";
import { named } from "./tokens.js";
import { tables } from "../common/tables.js";
import { runSettings } from "../common/words.js";

const PATH = "../specdemo-traces";
const LAST_RUN_KEY = "specdemo-last-run";
const MAX_RUN_CHARACTERS = 2_000_000; // browsers store about five million characters per page
const INVITATION = " Press Run for your own.";
const LINK_WORDS = "Press Run to start the linked run. Recording shown now:";

/** The built-in recordings, each with its name, title, about, device, pair and figures; an empty list on failure. */
export async function listRecordings(base) {
  const response = await fetch(new URL(`${PATH}/index.json`, base));
  return response.ok ? response.json() : [];
}

/** The events of a built-in recording as NDJSON. */
export async function fetchRecording(base, name) {
  return eventsFrom(await fetch(new URL(`${PATH}/${encodeURIComponent(name)}.ndjson`, base)));
}

/** The events of a trace file as NDJSON; the server checks it. */
export async function openTrace(base, file) {
  // The server closes the connection on a larger file, and a browser could not show the reason.
  const limit = tables.max_trace_bytes;
  if (file.size > limit) throw new Error(`The file is too large; choose a trace of at most ${limit.toLocaleString("en")} bytes.`);
  return eventsFrom(await fetch(new URL(PATH, base), { method: "POST", body: file }));
}

async function eventsFrom(response) {
  if (response.ok) return response.text();
  const { error } = await response.json().catch(() => ({}));
  throw new Error(error ?? `The server did not send the run (status ${response.status}); try again.`);
}

/** The run on the stage in words: "your last run", or where another run comes from and what computed it. */
export function sourceWords({ isOwn, recording, trace }) {
  if (isOwn) return "your last run";
  const { device, watched } = trace.start.run;
  if (watched) return `a run of the server ${named(watched.server)}`;
  return `${recording ? "a recorded" : "an opened"} run (${named(device)})`;
}

/** True if the parameters of an address name settings of a run. */
export function hasSettings(asked) {
  return tables.linked.some((name) => asked.has(name));
}

/** The recording most like the run that an address asks for: with its prompt, else its drafter, else its rule. */
export function nearest(recordings, asked) {
  const agrees = (recording, name) => asked.get(name) === recording[name];
  const likeness = (recording) => 4 * agrees(recording, "prompt") + 2 * agrees(recording, "drafter") + agrees(recording, "rule");
  return [...recordings].sort((one, other) => likeness(other) - likeness(one))[0];
}

/** True if the visitor prefers reduced motion, so that nothing plays by itself. */
export function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** The recording that plays on arrival: of the prompt in the widgets, or like the run whose settings a link has set. */
export class Arrival {
  constructor(stage, name) {
    this.stage = stage;
    this.name = name;
    this.note = element("span", "sd-kept");
  }

  /** Play the recording of the prompt in the widgets. */
  async show() {
    if (!(await this.play(this.name))) return;
    this.say(`Recorded on ${this.stage.trace.start.run.device}.`, INVITATION);
  }

  /** Play a recording until the visitor repeats the run whose settings a link has set. */
  async showLike(recording) {
    if (!(await this.play(recording))) return;
    this.say(LINK_WORDS);
    this.stage.shown.isLinked = true;
    this.stage.source.load.hidden = true; // it would replace the settings of the link
  }

  /** Play a recording, unless the visitor has started another run. With reduced motion its end is shown at once. */
  async play(name) {
    const { stage } = this;
    const plays = await stage.toolbar.play(() => fetchRecording(stage.toolbar.base, name), name);
    if (plays && isStill()) stage.player.seekEnd();
    return plays;
  }

  say(words, invitation = "") {
    const live = element("span", "", invitation);
    live.dataset.only = "live";
    this.note.replaceChildren(words, live);
    this.stage.shown.note = this.note;
    this.stage.roles.source.prepend(this.note);
  }
}

/** The number of times that the button Repeat measures a run. */
export const REPEATS = 3;

/** The line that names the prompt and settings of the run on the stage, with the ways back from it. */
export class Source {
  constructor(stage) {
    this.stage = stage;
    this.load = element("a", "sd-way", "Load these settings");
    this.back = button("sd-way", "Back to my run", () => {
      stage.toolbar.stopRun(); // a run that waits in the queue
      stage.lastRun.show();
    });
    this.clear = button("sd-way", "Clear", () => stage.clear());
    this.repeat = button("sd-way", "Repeat", () => {}); // the page of a live run starts it
    this.repeat.title = `Measures the run ${REPEATS} times and shows the median`;
    this.load.dataset.only = "live";
    stage.roles.source.append(this.load, this.back, this.repeat, this.clear);
  }

  /** Name a run; null if the stage is empty. */
  show(run) {
    const { stage, load, back, clear } = this;
    const { source, "source-words": words, "source-prompt": prompt, "source-help": help } = stage.roles;
    // The widgets have the settings of a visitor's own run, and those of the first recording.
    load.hidden = !run || stage.live || stage.recording === stage.arrival.name || stage.shown.isLinked;
    if (!load.hidden) load.href = linkTo(location.href, run, null);
    back.hidden = (Boolean(run) && (stage.live || stage.isOwn)) || !storedRun();
    source.querySelector(".sd-kept")?.remove();
    if (run && stage.shown.note) source.prepend(stage.shown.note);
    for (const node of [prompt, words, help, clear]) node.hidden = !run;
    this.repeat.hidden = true; // until a run of the visitor ends
    if (run) {
      prompt.textContent = `“${named(run.config.prompt)}”`;
      prompt.title = run.config.prompt;
      words.textContent = runSettings(run);
    }
    source.hidden = !run && back.hidden;
  }
}

// Null on the static copy, which has no runs of its own; a live page on the same host may have stored one.
function storedRun() {
  return document.querySelector(".sd-copy") ? null : recall(LAST_RUN_KEY);
}

/** Store the events of a finished run; they replace those of the run before. */
export function keepRun(events) {
  forget(LAST_RUN_KEY); // also if the new run is too long to be stored
  const text = events.map((event) => JSON.stringify(event)).join("\n");
  if (text.length <= MAX_RUN_CHARACTERS) remember(LAST_RUN_KEY, text);
}

/** The last run of this browser, so that a reload does not lose it. */
export class LastRun {
  constructor(stage) {
    this.stage = stage;
    this.note = element("span", "sd-kept", "Your last run", " (", button("sd-opener", "delete this run", () => this.drop()), ")");
    this.note.title = "Your last run is stored in this browser only";
  }

  /** Show the end of the stored run; returns true if there is one. */
  show() {
    const text = storedRun();
    if (!text) return false;
    const { stage } = this;
    try {
      stage.load(text, { isOwn: true, isKept: true });
      stage.player.seekEnd();
    } catch {
      this.drop(); // it is damaged, or another version of the page has stored it
      return false;
    }
    stage.shown.note = this.note;
    stage.roles.source.prepend(this.note);
    return true;
  }

  drop() {
    forget(LAST_RUN_KEY);
    this.stage.clear();
  }
}
