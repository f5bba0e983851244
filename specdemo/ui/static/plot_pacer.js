// When charts are drawn: the page may share its processor with the models, so seldom, and piece by piece.

const GAP_MS = 250;
const REST = 12; // drawing for t is followed by a rest of 12 t at least

/**
 * Draws what is due, one piece a task, and rests after: 250 ms at least, and 12 times as long as it redrew.
 * `due()` lists what is to be drawn; `draw(name)` draws it, takes it off the list, and resolves to whether that
 * was a redrawing: the first one takes several times as long and comes but once.
 */
export class PlotPacer {
  constructor({ due, draw, clock = browserClock }) {
    this.due = due;
    this.draw = draw;
    this.clock = clock;
    this.busy = false;
    this.restedAt = 0;
  }

  /** Something may be due. */
  wake() {
    if (this.busy || !this.due().length) return;
    this.busy = true;
    this.clock.after(Math.max(0, this.restedAt - this.clock.now()), () => this.run());
  }

  async run() {
    let took = 0;
    try {
      for (const name of this.due()) {
        const from = this.clock.now();
        const again = await this.draw(name);
        if (again) took += this.clock.now() - from;
        await this.clock.turn();
      }
    } finally {
      this.restedAt = this.clock.now() + Math.max(GAP_MS, REST * took);
      this.busy = false;
      this.wake();
    }
  }
}

const browserClock = {
  now: () => performance.now(),
  after: (delay, callback) => setTimeout(callback, delay),
  turn: () => new Promise((resolve) => setTimeout(resolve)),
};
