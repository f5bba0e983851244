// What a teacher's stage shows, as messages to the class: the run's events as they come, and the view whenever the
// students' own clocks would not show it. Asked several times a second; counts as told only what has been taken.

const SYNC_MS = 2000; // while it plays, a student's clock is set at least so often
const MOST_APART_S = 0.3; // of real time

export class Relay {
  /** `stage` is what is shown; `place()` gives the page's `{ tab, lesson }`; `now()` milliseconds. */
  constructor(stage, place, now = () => performance.now()) {
    this.stage = stage;
    this.place = place;
    this.now = now;
    this.told = { trace: null, events: 0, error: null, view: null, at: 0 };
  }

  /** `{ messages, taken }`: what is new since the last `taken()`. */
  news() {
    const { stage, told } = this;
    const messages = [];
    const next = { ...told };
    if (stage.trace !== told.trace) {
      messages.push({ type: "begin", recording: stage.recording, topic: stage.topic.current });
      Object.assign(next, { trace: stage.trace, events: 0, error: null });
    }
    const events = stage.trace.events.slice(next.events);
    const { error } = stage.notice;
    if (error !== next.error && error !== null) events.push({ type: "error", message: error });
    Object.assign(next, { events: stage.trace.events.length, error });
    if (events.length) messages.push({ type: "events", events });
    const view = this.view();
    if (messages.length || this.isNews(view)) {
      messages.push({ type: "view", ...view });
      Object.assign(next, { view, at: this.now() });
    }
    return { messages, taken: () => (this.told = next) };
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
