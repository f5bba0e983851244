// Draft length policies, decided before each round: engine/draft_length.py and engine/running_costs.py for a browser.

import { bestLength } from "./figures.js";

const MEMORY = 20;
const PRIOR_RATE = 0.5;
const PRIOR_WEIGHT = 4;
const LASTING_WEIGHT = 0.5;
const NEIGHBOR_WEIGHT = 6;
const PROBE_AFTER = 6;
const FIRST_PROBE = 2;
const PROBE_SHARE = 0.02;
const COST_MEMORY = 7;

export class FixedLength {
  constructor(k) {
    this.k = k;
  }

  /** The number of draft tokens of the next round, which has room for `limit`. */
  start(limit) {
    return Math.min(this.k, limit);
  }

  observe() {}

  timed() {}
}

/** A running estimate of an acceptance rate, in which old observations lose weight with every round. */
class Rate {
  constructor(prior, fading, lasting) {
    Object.assign(this, { prior, lasting, sum: prior * fading, count: fading, round: 0 });
  }

  add(value, now) {
    const keep = this.keep(now);
    Object.assign(this, { sum: this.sum * keep + value, count: this.count * keep + 1, round: now });
  }

  value(now, prior = this.prior) {
    const keep = this.keep(now);
    return (this.sum * keep + prior * this.lasting) / (this.count * keep + this.lasting);
  }

  keep(now) {
    return Math.exp((this.round - now) / MEMORY);
  }
}

/** Chooses the k with the best expected speedup before each round. */
export class PlannedLength {
  constructor(calibration, maxK) {
    Object.assign(this, { calibration, maxK, costs: new RunningCosts(calibration), round: -1, undrafted: 0 });
    this.observed = Array.from({ length: maxK }, (_, place) =>
      place ? new Rate(PRIOR_RATE, 0, NEIGHBOR_WEIGHT) : new Rate(PRIOR_RATE, PRIOR_WEIGHT, LASTING_WEIGHT));
  }

  start(limit) {
    this.round += 1;
    const rates = [];
    for (const rate of this.observed) rates.push(rate.value(this.round, rates.at(-1)));
    const most = Math.min(limit, this.maxK);
    return bestLength(rates.slice(0, most), this.costs) || Number(most > 0 && this.isProbeDue());
  }

  // A round in which no draft is expected to pay, but one token is drafted to measure whether drafting pays by now.
  isProbeDue() {
    const cost = Math.min(...[this.costs, this.calibration].map(({ c, v }) => c + v[1] - v[0]));
    const due = this.round === FIRST_PROBE ? FIRST_PROBE : Math.max(PROBE_AFTER, Math.ceil(cost / PROBE_SHARE));
    return this.undrafted >= due;
  }

  /** Learn a round's numbers of accepted and of compared draft tokens. */
  observe(accepted, compared) {
    this.undrafted = compared ? 0 : this.undrafted + 1;
    for (let place = 0; place < compared; place += 1) this.observed[place].add(Number(place < accepted), this.round);
  }

  timed(draftSteps, rows, draftS, verifyS) {
    this.costs.timed(draftSteps, rows, draftS, verifyS);
  }
}

/** The costs c and v(n) of a run: the calibrated ones, corrected by the times of the run's own rounds. */
class RunningCosts {
  constructor({ step_s: stepS, c, v }) {
    Object.assign(this, { stepS, calibratedV: v, c, v: [...v], pace: new LowNumber(0, 2), rows: new Map() });
    this.draft = new LowNumber(Math.log(c), 1);
  }

  timed(draftSteps, rows, draftS, verifyS) {
    if (verifyS > 0) this.correctV(rows - 1, Math.log(verifyS / (this.stepS * this.calibratedV[rows - 1])));
    if (!draftSteps || draftS <= 0) return;
    this.draft.add(Math.log(draftS / (draftSteps * this.stepS)) - this.pace.value);
    this.c = Math.exp(this.draft.value);
  }

  correctV(index, slowdown) {
    this.pace.add(slowdown);
    if (!this.rows.has(index)) this.rows.set(index, new LowNumber(0, 2));
    this.rows.get(index).add(slowdown - this.pace.value);
    const known = [...this.rows].sort(([one], [other]) => one - other);
    this.v = this.calibratedV.map((cost, at) => cost * Math.exp(interpolated(known, at)));
  }
}

/** The number a third of the way up in the last few; an estimate counts as the first `weight`. */
class LowNumber {
  constructor(estimate, weight) {
    this.value = estimate;
    this.last = Array(weight).fill(estimate);
  }

  add(number) {
    this.last = [...this.last, number].slice(-COST_MEMORY);
    this.value = [...this.last].sort((one, other) => one - other)[Math.floor(this.last.length / 3)];
  }
}

// Between two known indices the value is interpolated; outside of all it is constant.
function interpolated(known, at) {
  const below = known.findLast(([index]) => index <= at) ?? known[0];
  const above = known.find(([index]) => index >= at) ?? known.at(-1);
  const share = below[0] === above[0] ? 0 : (at - below[0]) / (above[0] - below[0]);
  return below[1].value + share * (above[1].value - below[1].value);
}
