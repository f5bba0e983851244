// The replay of a run: its clock, the controls of the clock, and the keys of the page.

import { button, element, recall, remember } from "../common/dom.js";
import { BASELINE } from "./trace.js";

const MAX_FRAME_S = 0.1; // longer gaps are cut, so that a tab that was hidden resumes where it was
const LIVE_FRAME_MS = 100; // the time between two drawings while models run
const SHARED_FRAME_MS = 250; // the same while they run on the processor that also draws the page
const NEARLY_S = 1e-9;
const ROUNDED_S = 1e-6;
const SLOW_TOKENS_PER_S = 10;
/** The length in seconds to which the pace "fit" slows down a shorter run. */
export const FIT_S = 15;
const USUAL_SLOWNESS = 4; // the slowness at "fit" if the length of the run is not known yet
// The seconds of each phase of the first rounds, in which the page explains what a round is.
const SLOW_ROUNDS = [{ prompt: 0.5, draft: 1.6, verify: 1.2, verdict: 1.7 }, { draft: 1, verify: 0.8, verdict: 1.2 }];
const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

let modelsRun = false;

/** Record whether models run now. */
export function setModelsRun(value) {
  modelsRun = value;
}

/** True if models run now on the processor that draws the page. Then the page draws rarely and has no animations. */
export function sharesProcessor() {
  return modelsRun && LOOPBACK.test(location.hostname);
}

/** The phases of the first rounds of a lane in the order of time, as `{ phase, from, to, seconds }`. */
export function slowPhases(entries) {
  const phases = [];
  const add = (phase, from, to, seconds) => to > from && phases.push({ phase, from, to, seconds });
  let begin = entries[0]?.from;
  add("prompt", 0, begin, SLOW_ROUNDS[0].prompt);
  for (const [index, seconds] of SLOW_ROUNDS.entries()) {
    const [entry, next] = [entries[index], entries[index + 1]];
    if (!entry) break;
    const { draftEnd, to } = entry;
    // A verdict stays until the first draft token of the next round is complete.
    const seen = next ? next.from + (next.draftEnd - next.from) / Math.max(1, next.round.drafted.length) : to;
    add("draft", begin, draftEnd, seconds.draft);
    add("verify", draftEnd, to, seconds.verify);
    add("verdict", to, seen, seconds.verdict);
    begin = seen;
  }
  return phases;
}

/** The rate of the slow phase at `time` and its end, as `Player` takes them; null after the last one. */
export function slowedAt(entries, time) {
  const at = slowPhases(entries).find(({ from, to }) => from <= time && time < to);
  return at ? { rate: (at.to - at.from) / at.seconds, to: at.to } : null;
}

/**
 * The clock. It plays, pauses, seeks and steps through a trace, up to the end of what has arrived. Does not use the
 * DOM.
 */
export class Player {
  /**
   * `onTime(time)` is called after every change of the clock, and `onState()` when it plays, pauses, stalls or ends.
   * `slowedAt(time)` returns `{ rate, to }` if another rate than that of the pace applies until the time `to`, else
   * null. `frames` provides the time and animation frames.
   */
  constructor({ trace, pace, onTime, onState, slowedAt = () => null, frames = browserFrames() }) {
    this.trace = trace;
    this.pace = pace;
    this.slowedAt = slowedAt;
    this.onTime = onTime;
    this.onState = onState;
    this.frames = frames;
    this.time = 0;
    this.playing = false;
    this.frame = 0;
    this.last = 0;
  }

  /**
   * Seconds of the run per real second. `pace` is this number, "fit" (about `FIT_S` per run) or "tokens" (a fixed
   * rate).
   */
  get rate() {
    const slowed = this.slowedAt(this.time);
    if (slowed) return slowed.rate;
    if (this.pace === "fit") return 1 / this.slowness;
    if (this.pace !== "tokens") return this.pace;
    const perSecond = this.trace.arrived.at(-1)?.totals.tokens_per_s;
    return perSecond ? SLOW_TOKENS_PER_S / perSecond : 1;
  }

  /** The factor by which "fit" slows down a run. It is set by the expected length, and once more by the true length. */
  get slowness() {
    const { trace } = this;
    const seconds = trace.expectedSeconds();
    if (seconds === null) return USUAL_SLOWNESS;
    if (this.fitted?.closed !== trace.closed) {
      this.fitted = { closed: trace.closed, slowness: Math.max(1, Math.round(FIT_S / seconds)) };
    }
    return this.fitted.slowness;
  }

  get atEnd() {
    return this.trace.closed && this.time >= this.trace.frontier() - NEARLY_S;
  }

  /** True if the clock plays but waits for rounds to arrive. */
  get stalled() {
    return this.playing && !this.trace.closed && this.time >= this.trace.frontier() - NEARLY_S;
  }

  play() {
    if (this.atEnd) this.moveTo(0);
    this.playing = true;
    this.wake();
    this.onState();
  }

  pause() {
    this.playing = false;
    this.frames.cancel(this.frame);
    this.frame = 0;
    this.onState();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** Continue after more rounds, or the end, have arrived. */
  wake() {
    if (this.frame || !this.playing) return;
    this.last = this.frames.now();
    this.request();
  }

  seek(time) {
    this.moveTo(Math.min(Math.max(0, time), this.trace.frontier()));
    if (this.playing && this.atEnd) return this.pause();
    this.wake();
    this.onState();
  }

  seekEnd() {
    this.seek(this.trace.frontier());
  }

  /** Move to the next (`direction` 1) or previous (-1) time in `stops`, and pause there. */
  step(stops, direction) {
    this.pause();
    const ahead = (stop) => stop > this.time + NEARLY_S;
    const target = direction > 0 ? stops.find(ahead) : stops.findLast((stop) => stop < this.time - NEARLY_S);
    this.seek(target ?? (direction > 0 ? this.trace.frontier() : 0));
  }

  moveTo(time) {
    this.time = time;
    this.onTime(time);
  }

  get liveFrameMs() {
    return sharesProcessor() ? SHARED_FRAME_MS : LIVE_FRAME_MS;
  }

  request() {
    const tick = () => this.tick();
    this.frame = this.trace.closed ? this.frames.request(tick) : this.frames.after(this.liveFrameMs, tick);
  }

  tick() {
    this.frame = 0;
    if (!this.playing) return;
    const now = this.frames.now();
    const longest = MAX_FRAME_S + (this.trace.closed ? 0 : this.liveFrameMs / 1000);
    const passed = Math.min(Math.max(0, now - this.last) / 1000, longest);
    this.last = now;
    const frontier = this.trace.frontier();
    const end = this.slowedAt(this.time)?.to ?? frontier; // another rate may apply from there
    const time = Math.min(this.time + passed * this.rate, end, frontier);
    if (time !== this.time) this.moveTo(time);
    if (this.atEnd) this.pause();
    else if (time < frontier) this.request();
    else this.onState();
  }
}

// Waiting by timer and by animation frame use one handle, so that `cancel` ends either.
function browserFrames() {
  return {
    now: () => performance.now(),
    request: (callback) => ({ animation: requestAnimationFrame(callback) }),
    after: (delay, callback) => {
      const handle = {};
      // A hidden tab gets no animation frames, so its run waits until the tab is visible.
      const seen = () => (document.hidden ? (handle.animation = requestAnimationFrame(callback)) : callback());
      handle.timer = setTimeout(seen, delay);
      return handle;
    },
    cancel: (handle) => {
      cancelAnimationFrame(handle?.animation);
      clearTimeout(handle?.timer);
    },
  };
}

const PACE_KEY = "specdemo-pace";
const PACE_WORDS = {
  tokens: "shown at 10 tokens/s",
  0.05: "shown at 1/20 of real speed",
  0.25: "shown at 1/4 of real speed",
  1: "shown at real speed",
};
const NAMED_PACES = ["fit", "tokens"]; // all other paces are fractions of real speed
const CONTROLS = ["to-start", "round-back", "phase-back", "play", "phase-on", "round-on", "to-end", "scrub"];

/** The controls of the clock: its buttons, the scrub bar and the choice of a pace. */
export class Transport {
  constructor(stage) {
    this.stage = stage;
    this.roles = stage.roles;
    this.paces = [...stage.root.querySelectorAll("input[name=sd-pace]")];
    this.wire();
    const remembered = this.paces.find((radio) => radio.value === recall(PACE_KEY));
    this.takePace(remembered ?? this.paces.find((radio) => radio.checked));
  }

  wire() {
    const { stage, roles } = this;
    const on = (role, act) => roles[role].addEventListener("click", () => act(stage.player, stage.trace));
    on("play", (player) => player.toggle());
    on("to-start", (player) => player.seek(0));
    on("to-end", (player) => player.seekEnd());
    on("round-back", (player, trace) => player.step(trace.roundStops(stage.steppedLane), -1));
    on("round-on", (player, trace) => player.step(trace.roundStops(stage.steppedLane), 1));
    on("phase-back", (player, trace) => player.step(trace.phaseStops(stage.steppedLane), -1));
    on("phase-on", (player, trace) => player.step(trace.phaseStops(stage.steppedLane), 1));
    roles.scrub.addEventListener("input", () => {
      const [time, frontier] = [Number(roles.scrub.value), stage.trace.frontier()];
      stage.player.pause();
      stage.player.seek(time > frontier - ROUNDED_S ? frontier : time); // browsers round the value
    });
    for (const radio of this.paces) {
      radio.addEventListener("change", () => {
        this.setPace(radio.value);
        remember(PACE_KEY, radio.value);
      });
    }
  }

  /** Set the pace to the value of a pace button; the browser does not store it. */
  setPace(value) {
    this.takePace(this.paces.find((radio) => radio.value === value));
    this.stage.player.pace = this.pace;
    this.showState();
  }

  takePace(radio) {
    radio.checked = true;
    this.pace = NAMED_PACES.includes(radio.value) ? radio.value : Number(radio.value);
  }

  /** `settled`: the number of rounds that have been played, in the lane that the steps follow. */
  showTime(settled) {
    const { scrub, clock } = this.roles;
    const { player, trace, steppedLane } = this.stage;
    const frontier = trace.frontier();
    if (scrub.max !== String(frontier)) scrub.max = frontier;
    scrub.value = player.time;
    const played = `${steppedLane === BASELINE ? "pass" : "round"} ${settled}`;
    clock.textContent = trace.closed ? `${played} of ${trace.entries(steppedLane).length}` : played;
    scrub.setAttribute("aria-valuetext", `${player.time.toFixed(2)} s of ${frontier.toFixed(2)}`);
  }

  showState() {
    const { roles } = this;
    const { player, trace } = this.stage;
    roles.play.setAttribute("aria-label", player.playing ? "Pause" : "Play");
    roles.play.title = player.playing ? "Pause" : "Play";
    roles["pace-text"].textContent = player.stalled ? "waiting for the models" : paceWords(player);
    for (const name of CONTROLS) roles[name].disabled = !trace.start;
  }
}

function paceWords({ pace, slowness, time, slowedAt }) {
  if (slowedAt(time)) return "slowed for the captions";
  if (pace !== "fit") return PACE_WORDS[pace];
  return slowness === 1 ? PACE_WORDS[1] : `shown at 1/${slowness} of real speed`;
}

const KEY_LIST = [
  ["Space", "Play or pause"],
  ["← →", "Step one phase: draft, verify, accept or correct"],
  ["Shift + ← →", "Step one round"],
  ["Home, End", "Go to the start or the end of the run"],
  ["Tab", "Move to the next lane or control"],
  ["← → in a lane", "Move to the previous or next token"],
  ["← → on the round strip", "Open the previous or next round"],
  ["Enter", "Keep a token's details open, or open a round"],
  ["Esc", "Close the open panel"],
  ["?", "Show this list of keys"],
];
const COMMANDS = { " ": "play", ArrowLeft: "phase-back", ArrowRight: "phase-on", Home: "to-start", End: "to-end", "?": "help" };
const SHIFTED = { ArrowLeft: "round-back", ArrowRight: "round-on", "?": "help" };
const STEPS = { "phase-back": -1, "round-back": -1, "phase-on": 1, "round-on": 1 };

const PLAIN_INPUTS = ":not([type=checkbox], [type=radio], [type=range], [type=button], [type=submit])";
const WRITTEN_IN = `textarea, select, input${PLAIN_INPUTS}, [contenteditable]:not([contenteditable=false]), dialog`;
const PRESSED = "button, summary, a[href], input[type=checkbox], input[type=radio]:not(:checked), [role=button], [role=tab], [role=option]";
const WALKED = "input[type=range]:not([data-role=scrub]), input[type=radio], [role=slider], [role=tab], [role=listbox], .sd-text, .sd-cards";

/** The command of a key press; undefined if the key has none or the focused element uses the key itself. */
export function commandOf({ key, shiftKey, ctrlKey, altKey, metaKey, target }) {
  if (ctrlKey || altKey || metaKey) return undefined;
  const command = (shiftKey ? SHIFTED : COMMANDS)[key];
  const native = { play: PRESSED, help: null }[command];
  const users = [WRITTEN_IN, native === undefined ? WALKED : native];
  return users.some((places) => places && target.closest?.(places)) ? undefined : command;
}

/** The keys of the whole page, which make the run play, pause and step wherever the focus is. */
export class PageKeys {
  constructor(stage) {
    this.stage = stage;
    document.addEventListener("keydown", (event) => this.key(event));
    stage.roles.help.addEventListener("click", () => this.showList());
  }

  key(event) {
    const { root, trace } = this.stage;
    const command = event.defaultPrevented ? undefined : commandOf(event);
    const isSeen = root.getClientRects().length > 0; // false if the open tab hides the stage
    if (!command || !isSeen || (command !== "help" && !trace.start)) return;
    event.preventDefault();
    if (command === "help") this.showList();
    else this.obey(command);
  }

  // While the microscope is open, a step by round opens the neighboring round in it.
  obey(command) {
    const { roles, selection } = this.stage;
    if (STEPS[command] && selection.microscope.open) selection.openNeighbour(STEPS[command]);
    else roles[command].click();
  }

  showList() {
    this.list ??= this.makeList();
    this.list.showModal();
  }

  makeList() {
    const rows = KEY_LIST.map(([keys, words]) => element("div", "", element("dt", "", element("kbd", "", keys)), element("dd", "", words)));
    const close = button("sd-button", "Close", () => list.close());
    const list = element("dialog", "sd-keys", element("h2", "", "Keys"), element("dl", "", ...rows), close);
    list.setAttribute("aria-label", "Keys");
    this.stage.root.append(list);
    return list;
  }
}
