// When charts are drawn: the page may share its processor with the models, so seldom, and piece by piece.

const GAP_MS = 250;
const REST = 12; // drawing for t is followed by a rest of 12 t at least

/**
 * Draws what is due, one piece a task, and rests after: 250 ms at least, and 12 times as long as it redrew.
 * `due()` lists what is to be drawn; `notBefore(name)` is when it may be at the earliest, by `now` of the clock;
 * `draw(name)` draws it, takes it off the list, and resolves to whether that was a redrawing: the first one takes
 * several times as long and comes but once.
 */
export class PlotPacer {
  constructor({ due, draw, notBefore = () => 0, clock = browserClock }) {
    this.due = due;
    this.draw = draw;
    this.notBefore = notBefore;
    this.clock = clock;
    this.busy = false;
    this.drawnAt = -GAP_MS;
    this.restedAt = 0;
    this.plan = null;
  }

  /** Something may be due. */
  wake() {
    if (this.busy) return;
    const names = this.due();
    if (!names.length) return;
    this.busy = true;
    const from = Math.max(this.restedAt, Math.min(...names.map((name) => this.notBefore(name))));
    this.plan = this.clock.after(Math.max(0, from - this.clock.now()), () => this.run());
  }

  /** Something is due of which a part cannot be seen until it is drawn: no rest but the least one. */
  hurry() {
    this.restedAt = Math.min(this.restedAt, this.drawnAt + GAP_MS);
    if (this.plan !== null) {
      this.clock.cancel(this.plan);
      this.plan = null;
      this.busy = false;
    }
    this.wake();
  }

  async run() {
    this.plan = null;
    const ready = this.due().filter((name) => this.notBefore(name) <= this.clock.now());
    let took = 0;
    try {
      for (const name of ready) {
        const from = this.clock.now();
        const again = await this.draw(name);
        if (again) took += this.clock.now() - from;
        await this.clock.turn();
      }
    } finally {
      if (ready.length) {
        this.drawnAt = this.clock.now();
        this.restedAt = this.drawnAt + Math.max(GAP_MS, REST * took);
      }
      this.busy = false;
      this.wake();
    }
  }
}

const browserClock = {
  now: () => performance.now(),
  after: (delay, callback) => setTimeout(callback, delay),
  cancel: (plan) => clearTimeout(plan),
  turn: () => new Promise((resolve) => setTimeout(resolve)),
};
