// A run as the browser has it: the events that came, and when on the lanes' clocks each round happened.
// Figures are the server's (`totals` of every round); nothing here counts or computes one. No DOM.

export const SPECULATIVE = "speculative";
export const BASELINE = "baseline";
export const DRAFT = "draft";
const COMPARISONS = new Set(["speedup", "speedup_end_to_end", "identical", "divergence", "divergence_gap", "draft_alone_departs"]);

/**
 * One lane's rounds in order. Each entry is
 * `{ lane, round, totals, from, draftEnd, verifyEnd, to, allEnded }`: the round, the figures after it, its phases in
 * seconds since the run began (prompt processing included), and when it and all that arrived before it have ended.
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
    this.entries.push({ lane: event.lane, round, totals: event.totals, from, draftEnd, verifyEnd, to });
    this.clock = to;
    this.done = Boolean(round.finish);
  }

  /** How many rounds have ended by `time`. */
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

  /** `{ settled, proposed, verifying }`: rounds ended, tokens of the next one drafted, and whether they are with the target. */
  stateAt(time) {
    const settled = this.settledBy(time);
    const next = this.entries[settled];
    if (!next || time < next.from) return { settled, proposed: 0, verifying: false };
    const count = next.round.drafted.length;
    const share = next.round.draft_s > 0 ? (time - next.from) / next.round.draft_s : 1;
    const proposed = Math.min(count, Math.floor(count * share + 1e-9));
    return { settled, proposed, verifying: time > next.draftEnd };
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
    this.moment = ""; // what `momentTotals` is for: rounds ended in each lane, and whether the run has
    this.momentEnd = null;
    this.momentTotals = null;
  }

  /** Take in one event of the stream; progress and error events are not part of a run. */
  take(event) {
    this.events.push(event);
    if (event.type === "start") {
      this.start = event;
      for (const name of laneNames(event.run.config)) this.lanes.set(name, new LaneTrace());
    } else if (event.type === "round") {
      const lane = this.lanes.get(event.lane);
      lane.add(event);
      const entry = lane.entries.at(-1);
      entry.allEnded = Math.max(entry.to, this.arrived.at(-1)?.allEnded ?? 0);
      this.arrived.push(entry);
    } else if (event.type === "end") {
      this.end = event;
      this.closed = true;
    }
  }

  /** Nothing more will come. */
  close() {
    this.closed = true;
  }

  entries(lane) {
    return this.lanes.get(lane)?.entries ?? [];
  }

  /** Lane name -> state (see `LaneTrace.stateAt`). */
  stateAt(time) {
    return Object.fromEntries([...this.lanes].map(([name, lane]) => [name, lane.stateAt(time)]));
  }

  /**
   * The figures at `time`; null before the first verdict. A lane's own are those sent with its latest round that has
   * ended; what compares lanes is of the latest round by which all that had arrived has ended. So none of them knows
   * of a round that is still under way, though the engine had finished it when it sent them.
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

  /** The latest arrival that has ended by `time` together with all before it. */
  commonAt(time) {
    let [low, high] = [0, this.arrived.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.arrived[middle].allEnded <= time) low = middle + 1;
      else high = middle;
    }
    return this.arrived[low - 1];
  }

  /** What the engine is doing at `time`: "draft", "verify", "verdict" or null. */
  phaseAt(time) {
    const lane = this.lanes.get(SPECULATIVE);
    if (!lane) return null;
    const { settled, proposed, verifying } = lane.stateAt(time);
    const next = lane.entries[settled];
    if (!next || time < next.from) return settled && !lane.done ? "verdict" : null;
    if (verifying || !next.round.drafted.length) return "verify";
    // Between a verdict and the first token of the next draft there is only the draft model's first step.
    return proposed || !settled ? "draft" : "verdict";
  }

  /** How far both lanes are known: a lane that still runs holds the others back. */
  frontier() {
    const lanes = [...this.lanes.values()];
    const open = this.closed ? [] : lanes.filter((lane) => !lane.done);
    const clocks = (open.length ? open : lanes).map((lane) => lane.clock);
    return open.length ? Math.min(...clocks) : Math.max(0, ...clocks);
  }

  /** How many seconds the run will have taken at its end, about; null where nothing tells. */
  expectedSeconds() {
    if (this.closed) return this.frontier() || null;
    const { config, calibration } = this.start?.run ?? {};
    return calibration ? config.max_new_tokens * calibration.step_s : null;
  }

  /** Moments a step by phase stops at: draft complete, with the target, verdict. */
  phaseStops() {
    return this.entries(SPECULATIVE).flatMap(({ round, draftEnd, verifyEnd, to }) =>
      round.drafted.length ? [draftEnd, verifyEnd, to] : [to],
    );
  }

  /** Moments a step by round stops at. */
  roundStops() {
    return this.entries(SPECULATIVE).map(({ to }) => to);
  }

  /** The trace file of this run: what `Run.to_json` writes. */
  file() {
    const lanes = {};
    for (const [name, lane] of this.lanes) lanes[name] = { rounds: lane.entries.map(({ round }) => round) };
    const pieces = Object.assign({}, ...this.events.map((event) => event.pieces ?? {}));
    const specials = this.start.specials.filter((id) => id in pieces);
    const totals = this.end?.totals ?? this.arrived.at(-1)?.totals ?? {};
    return { ...this.start.run, lanes, pieces, specials, totals };
  }
}

// Whose totals know the figure `name` at a moment, and nothing that comes later.
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
