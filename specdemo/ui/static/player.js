// Plays finished rounds of both lanes on one virtual clock, at a pace, never ahead of what has arrived.

const LONGEST_FRAME_S = 0.1; // a tab that was hidden resumes where it was instead of jumping

/**
 * onStep({ kind, lane, event, index }) is called in virtual-time order; kind is "propose", "verify" or
 * "settle". onFinish() is called once, when everything has been played after close().
 */
export class Player {
  constructor({ onStep, onFinish, onStall }) {
    this.onStep = onStep;
    this.onFinish = onFinish;
    this.onStall = onStall;
    this.pace = 0.25;
    this.reset([]);
  }

  reset(lanes) {
    this.lanes = new Map(lanes.map((name) => [name, { clock: 0, steps: [], next: 0, done: false }]));
    this.time = 0;
    this.arrived = 0;
    this.closed = false;
    this.skipping = false;
    this.finished = false;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  /** A round has arrived: schedule its phases from its recorded seconds. */
  add(event) {
    const lane = this.lanes.get(event.lane);
    const { round } = event;
    const order = this.arrived++;
    const start = lane.clock + round.prefill_s;
    const schedule = (at, kind, index) => lane.steps.push({ at, kind, index, order, lane: event.lane, event });
    const count = round.drafted.length;
    for (let index = 0; index < count; index += 1) {
      schedule(start + (round.draft_s * (index + 1)) / count, "propose", index);
    }
    if (count) schedule(start + round.draft_s, "verify");
    lane.clock = start + round.draft_s + round.verify_s + round.other_s;
    lane.done = Boolean(round.finish);
    schedule(lane.clock, "settle");
    this.wake();
  }

  /** Nothing more will arrive. */
  close() {
    this.closed = true;
    this.wake();
  }

  /** Show at once whatever has arrived, now and from here on. */
  skip() {
    this.skipping = true;
    this.wake();
  }

  wake() {
    if (this.frame || this.finished) return;
    this.last = performance.now();
    this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.frame = 0;
    const passed = Math.min(Math.max(0, now - this.last) / 1000, LONGEST_FRAME_S);
    this.last = now;
    const frontier = this.frontier();
    this.time = this.skipping ? frontier : Math.min(this.time + passed * this.pace, frontier);
    for (let step = this.due(); step; step = this.due()) this.onStep(step);
    const exhausted = [...this.lanes.values()].every((lane) => lane.next === lane.steps.length);
    if (this.closed && exhausted) {
      this.finished = true;
      this.onFinish();
    } else if (this.time < frontier) {
      this.frame = requestAnimationFrame((later) => this.tick(later));
    } else {
      this.onStall();
    }
  }

  // Both lanes are played only as far as the slower-arriving one is known.
  frontier() {
    const lanes = [...this.lanes.values()];
    const open = this.closed ? [] : lanes.filter((lane) => !lane.done);
    const clocks = (open.length ? open : lanes).map((lane) => lane.clock);
    return open.length ? Math.min(...clocks) : Math.max(0, ...clocks);
  }

  due() {
    let chosen;
    for (const lane of this.lanes.values()) {
      const step = lane.steps[lane.next];
      if (step && step.at <= this.time && (!chosen || step.at < chosen.steps[chosen.next].at)) chosen = lane;
    }
    return chosen && chosen.steps[chosen.next++];
  }
}
