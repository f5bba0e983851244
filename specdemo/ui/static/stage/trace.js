// A run in the browser: its events, and the time of each round on the clock of its lane. The server computes all
// figures (the `totals` of every round). This module does not use the DOM.

export const SPECULATIVE = "speculative";
export const BASELINE = "baseline";
export const DRAFT = "draft";
const COMPARISONS = new Set(["speedup", "speedup_end_to_end", "identical", "divergence", "divergence_gap", "draft_divergence"]);

/**
 * The rounds of a lane in order, as entries `{ lane, round, totals, spread, doubt, from, draftEnd, verifyEnd, to,
 * allEnded }`. `totals` are the figures after the round; `spread` and `doubt` are about its speedup. The times are in seconds since the start of the run, prefill included; `allEnded` is
 * the time at which this round and all rounds that arrived before it, in any lane, have ended.
 */
class LaneTrace {
  constructor() {
    this.entries = [];
    this.clock = 0;
    this.done = false;
  }

  add(event) {
    const { round } = event;
    const from = this.clock + round.prefill_s;
    const draftEnd = from + round.draft_s;
    const verifyEnd = draftEnd + round.verify_s;
    const to = verifyEnd + round.other_s;
    const { totals, spread, doubt } = event;
    this.entries.push({ lane: event.lane, round, totals, spread, doubt, from, draftEnd, verifyEnd, to });
    this.clock = to;
    this.done = Boolean(round.finish);
  }

  /** The number of rounds that have ended by `time`. */
  settledBy(time) {
    let low = 0;
    let high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.entries[middle].to <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * The state of the lane at `time`: the number of rounds that have ended (`settled`), the number of draft tokens of the
   * next round so far (`proposed`), true if the target is verifying that round (`verifying`), and true if no round
   * follows (`ended`).
   */
  stateAt(time) {
    const settled = this.settledBy(time);
    const next = this.entries[settled];
    if (!next || time < next.from) return { settled, proposed: 0, verifying: false, ended: !next && this.done };
    const count = next.round.drafted.length;
    const share = next.round.draft_s > 0 ? (time - next.from) / next.round.draft_s : 1;
    const proposed = Math.min(count, Math.floor(count * share + 1e-9));
    return { settled, proposed, verifying: time > next.draftEnd, ended: false };
  }
}

export class Trace {
  constructor() {
    this.lanes = new Map();
    this.arrived = [];
    this.start = null;
    this.end = null;
    this.closed = false;
    this.events = [];
    this.moment = ""; // the rounds that have ended in each lane, for which `momentTotals` was composed
    this.momentEnd = null;
    this.momentTotals = null;
  }

  /** Take an event of the run; do not call this for progress and error events. */
  take(event) {
    this.events.push(event);
    if (event.type === "start") {
      this.start = event;
      for (const name of laneNames(event.run.config)) this.lanes.set(name, new LaneTrace());
    } else if (event.type === "round") {
      const lane = this.lanes.get(event.lane);
      lane.add(event);
      const entry = lane.entries.at(-1);
      entry.spread ??= this.arrived.at(-1)?.spread; // sent only when it is renewed
      entry.allEnded = Math.max(entry.to, this.arrived.at(-1)?.allEnded ?? 0);
      this.arrived.push(entry);
    } else if (event.type === "end") {
      this.end = event;
      this.closed = true;
      for (const lane of this.lanes.values()) lane.done = true; // also that of a stopped run
    }
  }

  entries(lane) {
    return this.lanes.get(lane)?.entries ?? [];
  }

  /** The state of each lane at `time`, by the name of the lane (see `LaneTrace.stateAt`). */
  stateAt(time) {
    return Object.fromEntries([...this.lanes].map(([name, lane]) => [name, lane.stateAt(time)]));
  }

  /**
   * The figures at `time`; null before the first verdict. The figures of one lane are those of its latest round that has
   * ended. Figures that compare lanes are those of the latest round that has ended together with all rounds that arrived
   * before it. So no figure includes a round that is not shown yet.
   */
  totalsAt(time) {
    const settled = [...this.lanes.values()].map((lane) => lane.settledBy(time));
    const moment = settled.join();
    if (moment !== this.moment || this.end !== this.momentEnd) this.momentTotals = this.composeTotals(time, settled);
    this.moment = moment;
    this.momentEnd = this.end;
    return this.momentTotals;
  }

  composeTotals(time, settled) {
    const common = this.commonAt(time);
    if (this.end && common === this.arrived.at(-1)) return this.end.totals;
    const latest = [...this.lanes].map(([name, { entries }], index) => [name, entries[settled[index] - 1]?.totals]);
    const sent = Object.fromEntries(latest);
    if (!sent[SPECULATIVE]) return null;
    const totals = {};
    for (const name of Object.keys(sent[SPECULATIVE])) totals[name] = sourceOf(name, sent, common?.totals)?.[name] ?? null;
    return totals;
  }

  /** How far the speedup of `totalsAt` can be trusted: `{ spread, doubt }`, at the end also `speedups`. */
  trustAt(time) {
    const common = this.commonAt(time);
    return (this.end && common === this.arrived.at(-1) ? this.end : common) ?? {};
  }

  /** The latest round that has ended by `time` together with all rounds that arrived before it. */
  commonAt(time) {
    let [low, high] = [0, this.arrived.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.arrived[middle].allEnded <= time) low = middle + 1;
      else high = middle;
    }
    return this.arrived[low - 1];
  }

  /**
   * What a lane does at `time`, as `{ entry, phase, proposed }`: a round, its phase ("draft", "verify" or "verdict"), and the
   * number of its draft tokens so far. A verdict stays until the first draft token of the next round is complete. Null
   * before any round.
   */
  momentAt(time, name = SPECULATIVE) {
    const lane = this.lanes.get(name);
    if (!lane) return null;
    const { settled, proposed, verifying } = lane.stateAt(time);
    const [last, next] = [lane.entries[settled - 1], lane.entries[settled]];
    if (next && time >= next.from && (verifying || !next.round.drafted.length)) return { entry: next, phase: "verify", proposed };
    if (next && (proposed || !last)) return { entry: next, phase: "draft", proposed };
    return last ? { entry: last, phase: "verdict", proposed: last.round.drafted.length } : null;
  }

  /** The time up to which the state of every lane is known; a lane that still runs may limit it. */
  frontier() {
    const lanes = [...this.lanes.values()];
    const open = this.closed ? [] : lanes.filter((lane) => !lane.done);
    const clocks = (open.length ? open : lanes).map((lane) => lane.clock);
    return open.length ? Math.min(...clocks) : Math.max(0, ...clocks);
  }

  /** The expected length of the run in seconds, or null. */
  expectedSeconds() {
    if (this.closed) return this.frontier() || null;
    const { config, calibration } = this.start?.run ?? {};
    return calibration ? config.max_new_tokens * calibration.step_s : null;
  }

  /** The times at which a step by phase stops in a lane: draft complete, verification complete, verdict. */
  phaseStops(lane = SPECULATIVE) {
    return this.entries(lane).flatMap(({ round, draftEnd, verifyEnd, to }) =>
      round.drafted.length ? [draftEnd, verifyEnd, to] : [to],
    );
  }

  /** The times at which a step by round stops. */
  roundStops(lane = SPECULATIVE) {
    return this.entries(lane).map(({ to }) => to);
  }

  /** The contents of the trace file of this run, the same as Python writes. */
  file() {
    const lanes = {};
    for (const [name, lane] of this.lanes) lanes[name] = { rounds: lane.entries.map(({ round }) => round) };
    const pieces = Object.assign({}, ...this.events.map((event) => event.pieces ?? {}));
    const specials = this.start.specials.filter((id) => id in pieces);
    const totals = this.end?.totals ?? this.arrived.at(-1)?.totals ?? {};
    return { ...this.start.run, lanes, pieces, specials, totals };
  }
}

// Returns the totals from which to take the figure `name`: `sent` are the latest of each lane, `common` those for
// comparisons.
function sourceOf(name, sent, common) {
  if (COMPARISONS.has(name)) return common;
  if (name.startsWith("baseline_")) return sent[BASELINE];
  return name.startsWith("draft_alone_") ? sent[DRAFT] : sent[SPECULATIVE];
}

function laneNames(config) {
  const names = [SPECULATIVE];
  if (config.baseline) names.push(BASELINE);
  if (config.draft_alone) names.push(DRAFT);
  return names;
}
