// The teacher's run and view of it: `Relay` sends them from the teacher's page, `TeachersView` shows them to students.

import { commandOf } from "../stage/player.js";

const SYNC_MS = 2000; // while the run plays, a view is sent at least this often
const MAX_DRIFT_S = 0.3; // in real time, between the teacher's clock and the students'
const MAX_CHARACTERS = 300_000; // the maximum length of the events in one message; the server accepts a million bytes
const NOTHING = { trace: null, run: 0, events: 0, error: null, view: null, at: 0 };

export class Relay {
  /** `place()` returns the open `{ tab, lesson }` of the page; `now()` returns the time in milliseconds. */
  constructor(stage, place, now = () => performance.now()) {
    this.stage = stage;
    this.place = place;
    this.now = now;
    this.runs = 0;
    this.refused = null; // the trace that the server has refused, if any
    this.restart();
  }

  /** Send the current run from its beginning. */
  restart() {
    this.sent = NOTHING;
    this.runs += 1;
  }

  /** Do not send the current run, which the server has refused; the class sees no run until the next one. */
  giveUp() {
    this.refused = this.stage.trace;
    this.restart();
  }

  /**
   * Return `{ messages, taken }`: the messages with all that is new; call `taken()` once they have been accepted. The
   * events of a long run come in parts, one part per call.
   */
  news() {
    const { stage, sent } = this;
    const messages = [];
    const next = { ...sent };
    const isRefused = stage.trace === this.refused;
    const events = isRefused ? [] : stage.trace.events;
    const { error } = stage.shown;
    if (stage.trace !== sent.trace && (sent.trace || events.length || error !== null || isRefused)) {
      if (sent.trace) this.runs += 1;
      messages.push({ type: "begin", run: this.runs, recording: stage.recording, topic: stage.topic.current });
      Object.assign(next, { trace: stage.trace, run: this.runs, events: 0, error: null });
    }
    if (next.trace) messages.push(...nextPart(next, events, error));
    const view = this.view();
    if (messages.length || this.isNews(view)) {
      messages.push({ type: "view", ...view });
      Object.assign(next, { view, at: this.now() });
    }
    return { messages, taken: () => (this.sent = next) };
  }

  view() {
    const { player, transport, selection } = this.stage;
    const round = selection.microscope.open ? selection.index : null;
    return { time: player.time, playing: player.playing, pace: String(transport.pace), round, ...this.place() };
  }

  /** True if students no longer see this view: it has changed, or their clocks have drifted from it. */
  isNews(view) {
    const { view: known, at } = this.sent;
    if (!known) return true;
    const { time, ...state } = view;
    const { time: then, ...before } = known;
    if (JSON.stringify(state) !== JSON.stringify(before)) return true;
    if (!view.playing) return time !== then;
    const { player, trace } = this.stage;
    const passed = this.now() - at;
    const expected = Math.min(then + (passed / 1000) * player.rate, trace.frontier());
    return passed >= SYNC_MS || Math.abs(time - expected) > MAX_DRIFT_S * player.rate;
  }
}

/**
 * A list with the message of the next events, empty if there are none; `next` is moved past them. An error is sent
 * once.
 */
function nextPart(next, events, error) {
  const from = next.events;
  const part = [];
  for (let characters = 0; next.events < events.length && characters < MAX_CHARACTERS; next.events += 1) {
    part.push(events[next.events]);
    characters += JSON.stringify(events[next.events]).length;
  }
  if (error !== null && error !== next.error && next.events === events.length) {
    part.push({ type: "error", message: error });
    next.error = error;
  }
  return part.length ? [{ type: "events", run: next.run, from, events: part }] : [];
}

const MAX_FOLLOW_DRIFT_S = 0.7; // in real time; a smaller drift is only the delay of the network
const NO_DRIFT_S = 1e-6;
const CONTROLS = ".sd-replay, .sd-microscope, .sd-live, .sd-text, .sd-plots";

export class TeachersView {
  /** `onLeave` is called when the student uses a control of the run and so stops following the teacher. */
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

  /** Follow the teacher again, because another run begins. */
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
    const isWriting = document.activeElement?.closest(".sd-asked"); // do not scroll the page while the student types
    if (round !== shown && !isWriting) {
      if (round === null) selection.clear();
      else selection.open(round);
    }
    const passed = playing ? ((performance.now() - at) / 1000) * player.rate : 0;
    const target = Math.min(time + passed, trace.frontier());
    if (!playing) player.pause();
    if (Math.abs(player.time - target) > (playing ? MAX_FOLLOW_DRIFT_S * player.rate : NO_DRIFT_S)) player.seek(target);
    if (playing && !player.playing && !player.atEnd) player.play();
  }
}
