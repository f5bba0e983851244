// What a teacher's stage shows, as messages to the class: the run's events as they come, and the view whenever the
// students' own clocks would not show it. Asked several times a second; counts as told only what has been taken.

const SYNC_MS = 2000; // while it plays, a student's clock is set at least so often
const MOST_APART_S = 0.3; // of real time
const MOST_CHARACTERS = 300_000; // of the events in one message; the server takes a million bytes
const NOTHING = { trace: null, run: 0, events: 0, error: null, view: null, at: 0 };

export class Relay {
  /** `stage` is what is shown; `place()` gives the page's `{ tab, lesson }`; `now()` milliseconds. */
  constructor(stage, place, now = () => performance.now()) {
    this.stage = stage;
    this.place = place;
    this.now = now;
    this.unshared = null; // a run that the class cannot be shown
    this.tellAnew();
  }

  /** The class has not been told of the run at hand, whatever was thought. */
  tellAnew() {
    this.told = NOTHING;
    this.runs = (this.runs ?? 0) + 1;
  }

  /** The class cannot be shown this run, and sees none until the next. */
  giveUp() {
    this.unshared = this.stage.trace;
    this.tellAnew();
  }

  /** `{ messages, taken }`: what is new since the last `taken()`; a long run comes in parts. */
  news() {
    const { stage, told } = this;
    const messages = [];
    const next = { ...told };
    const isUnshared = stage.trace === this.unshared;
    const shown = isUnshared ? [] : stage.trace.events;
    const { error } = stage.notice;
    if (stage.trace !== told.trace && (told.trace || shown.length || error !== null || isUnshared)) {
      if (told.trace) this.runs += 1;
      messages.push({ type: "begin", run: this.runs, recording: stage.recording, topic: stage.topic.current });
      Object.assign(next, { trace: stage.trace, run: this.runs, events: 0, error: null });
    }
    if (next.trace) messages.push(...this.part(next, shown, error));
    const view = this.view();
    if (messages.length || this.isNews(view)) {
      messages.push({ type: "view", ...view });
      Object.assign(next, { view, at: this.now() });
    }
    return { messages, taken: () => (this.told = next) };
  }

  // Events of the run that have not been told, as many as one message holds; a failure counts as one, once.
  part(next, shown, error) {
    const events = [];
    let characters = 0;
    let end = next.events;
    for (; end < shown.length && characters < MOST_CHARACTERS; end += 1) {
      events.push(shown[end]);
      characters += JSON.stringify(shown[end]).length;
    }
    const from = next.events;
    if (error !== null && error !== next.error && end === shown.length) {
      events.push({ type: "error", message: error });
      next.error = error;
    }
    next.events = end;
    return events.length ? [{ type: "events", run: next.run, from, events }] : [];
  }

  view() {
    const { player, transport, selection } = this.stage;
    const round = selection.microscope.open ? selection.index : null;
    return { time: player.time, playing: player.playing, pace: String(transport.pace), round, ...this.place() };
  }

  /** Whether students' clocks would show something else by now. */
  isNews(view) {
    const { view: known, at } = this.told;
    if (!known) return true;
    const { time, ...state } = view;
    const { time: then, ...before } = known;
    if (JSON.stringify(state) !== JSON.stringify(before)) return true;
    if (!view.playing) return time !== then;
    const { player, trace } = this.stage;
    const passed = this.now() - at;
    const expected = Math.min(then + (passed / 1000) * player.rate, trace.frontier());
    return passed >= SYNC_MS || Math.abs(time - expected) > MOST_APART_S * player.rate;
  }
}
