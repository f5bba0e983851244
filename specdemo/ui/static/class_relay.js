// What a teacher's stage shows, as messages to the class: the events of the run, and the view whenever the students'
// own clocks would show something else. Asked several times a second.

const SYNC_MS = 2000; // maximum time between two views while the run plays
const MAX_DRIFT_S = 0.3; // of real time
const MAX_CHARACTERS = 300_000; // of the events in one message; the server accepts a million bytes
const NOTHING = { trace: null, run: 0, events: 0, error: null, view: null, at: 0 };

export class Relay {
  /** `place()` returns the page's `{ tab, lesson }`, `now()` milliseconds. */
  constructor(stage, place, now = () => performance.now()) {
    this.stage = stage;
    this.place = place;
    this.now = now;
    this.runs = 0;
    this.refused = null; // a trace that the server does not accept
    this.restart();
  }

  /** Send the current run from its beginning. */
  restart() {
    this.sent = NOTHING;
    this.runs += 1;
  }

  /** Show the class no run until the next one. */
  giveUp() {
    this.refused = this.stage.trace;
    this.restart();
  }

  /** `{ messages, taken }`: what is new since the last `taken()`, a long run in parts. */
  news() {
    const { stage, sent } = this;
    const messages = [];
    const next = { ...sent };
    const isRefused = stage.trace === this.refused;
    const events = isRefused ? [] : stage.trace.events;
    const { error } = stage.notice;
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

  /** Whether the students' clocks show something else by now. */
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

/** The message with the next events, if there are any; moves `next` past them. A failure counts as an event, once. */
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
