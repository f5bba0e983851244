// The virtual clock: plays, pauses, seeks and steps through a trace at a pace, never past what has arrived. No DOM.

import { sharesProcessor } from "./processor.js";

const LONGEST_FRAME_S = 0.1; // a tab that was hidden resumes where it was instead of jumping
const LIVE_FRAME_MS = 100; // while the models run
const SHARED_FRAME_MS = 250; // and that on the processor that draws
const NEARLY_S = 1e-9;
export const SLOW_TOKENS_PER_S = 10;
/** How many seconds a run takes at the pace "fit", if it is not longer by itself. */
export const FIT_S = 15;
const USUAL_SLOWNESS = 4; // of a run whose length cannot be told

/**
 * `onTime(time)` is called after every change of the clock, `onState()` after play, pause, stall or end.
 * `frames` stands in for the browser's clock and animation frames in tests.
 */
export class Player {
  constructor({ trace, pace, onTime, onState, frames = browserFrames() }) {
    this.trace = trace;
    this.pace = pace;
    this.onTime = onTime;
    this.onState = onState;
    this.frames = frames;
    this.time = 0;
    this.playing = false;
    this.frame = 0;
    this.last = 0;
  }

  /**
   * Virtual seconds per real second; `pace` is a number, "fit" for a whole run in about `FIT_S` seconds, or "tokens"
   * for a fixed number of tokens a second.
   */
  get rate() {
    if (this.pace === "fit") return 1 / this.slowness;
    if (this.pace !== "tokens") return this.pace;
    const perSecond = this.trace.arrived.at(-1)?.totals.tokens_per_s;
    return perSecond ? SLOW_TOKENS_PER_S / perSecond : 1;
  }

  /** How many times as slow as it was a run is shown to fit: by what its first rounds promise until all have come. */
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

  /** Whether the clock waits for rounds that have not arrived. */
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

  /** Rounds have arrived, or the last has. */
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

  /** To the next (`direction` 1) or previous (-1) of `stops`; pauses. */
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
    const longest = LONGEST_FRAME_S + (this.trace.closed ? 0 : this.liveFrameMs / 1000);
    const passed = Math.min(Math.max(0, now - this.last) / 1000, longest);
    this.last = now;
    const frontier = this.trace.frontier();
    const time = Math.min(this.time + passed * this.rate, frontier);
    if (time !== this.time) this.moveTo(time);
    if (this.atEnd) this.pause();
    else if (time < frontier) this.request();
    else this.onState();
  }
}

// One handle for both waits, so that `cancel` ends whichever is under way.
function browserFrames() {
  return {
    now: () => performance.now(),
    request: (callback) => ({ animation: requestAnimationFrame(callback) }),
    after: (delay, callback) => {
      const handle = {};
      // A hidden tab has no frames, so that its run waits to be seen.
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
