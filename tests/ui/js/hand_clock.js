// A clock that only moves when told to: by `after` callbacks and by drawings.
export function handClock() {
  return {
    time: 1000,
    waiting: null,
    now() {
      return this.time;
    },
    after(delay, callback) {
      this.waiting = { delay, callback };
      return this.waiting;
    },
    cancel(plan) {
      if (this.waiting === plan) this.waiting = null;
    },
    turn: () => Promise.resolve(),
    async fire() {
      const { delay, callback } = this.waiting;
      this.waiting = null;
      this.time += delay;
      await callback();
      return delay;
    },
  };
}
