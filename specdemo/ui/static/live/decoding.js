// Greedy decoding with drafts: engine/speculate.py and engine/race.py for a browser. All times are in seconds.

import { secondsOf } from "./figures.js";
import { FixedLength } from "./lengths.js";
import { quantile, scatter } from "./spread.js";
import { BASELINE, DRAFT, SPECULATIVE } from "../stage/trace.js";

const DRAFT_MODEL = "draft-model";
const TOP = 5;
const REPEATS = 4; // timings of each pass in a calibration
// A visitor waits: after MAX_SECONDS, so many timings are enough, and one for long passes, which are seldom chosen.
const MAX_SECONDS = 0.4;
const MIN_REPEATS = 3;
const SHORT_PASSES = 5;
const DRAFTED = 4;
const MEASURED_AT = 128; // the position of the measured passes

/** A clock that adds up the time between two marks. */
class Stopwatch {
  constructor() {
    this.laps = [];
    this.skip();
  }

  lap() {
    this.laps.push((performance.now() - this.from) / 1000);
    this.skip();
  }

  skip() {
    this.from = performance.now();
  }
}

/** A model with the cache of one lane; `length` is the number of its positions. */
class Model {
  constructor(passes, lane) {
    Object.assign(this, { passes, lane, length: 0 });
  }

  /** Append ids; the last `scored` of them get logits. */
  forward(ids, scored) {
    const { rows } = this.passes.plan;
    for (let first = 0; first < ids.length; first += rows) {
      const part = ids.slice(first, first + rows);
      this.passes.run(this.lane, part, this.length, first + rows < ids.length ? 0 : scored);
      this.length += part.length;
    }
  }

  /** Append ids, and then the tokens of all but the last of k steps; return the tokens. */
  write(ids, k) {
    const { rows } = this.passes.plan;
    const last = ids.slice(-rows);
    this.forward(ids.slice(0, -rows), 0);
    this.passes.run(this.lane, last, this.length, 1, { steps: k });
    this.length += last.length + k - 1;
    return this.passes.written(this.lane, k);
  }

  best(row) {
    return this.passes.best(this.lane, row);
  }

  /** The most likely tokens of a row, and a function for the probability of a token. */
  distribution(row) {
    return distribution(this.passes.logits(this.lane, row), this.passes.lanes[this.lane].idMap);
  }

  rollback(length) {
    this.length = Math.min(this.length, length);
  }
}

/** Process the prompt without its last token. After each part, yield its seconds and the processed share. */
function* prefill(models, promptIds) {
  const { rows } = models[0].passes.plan;
  const ids = promptIds.slice(0, -1);
  for (let first = 0; first < ids.length; first += rows) {
    const watch = new Stopwatch();
    for (const model of models) model.forward(ids.slice(first, first + rows), 0);
    watch.lap();
    yield { seconds: watch.laps[0], share: Math.min(1, (first + rows) / ids.length) };
  }
}

/**
 * Decode speculatively and yield one round per target pass, or without `draft` that of the target alone. While the prompt
 * is processed, yield the processed `share`. If `isStopped` returns true, the round is the last one.
 */
export function* speculate({ target, draft, promptIds, maxNewTokens, eosIds, length, isStopped }) {
  const text = [...promptIds];
  const end = text.length + maxNewTokens;

  // 0. Prefill
  let prefillS = 0;
  for (const { seconds, share } of prefill(draft ? [target, draft] : [target], text)) {
    prefillS += seconds;
    if (share < 1 && isStopped()) return;
    if (share < 1) yield { share };
  }

  for (let index = 0, finish = null; !finish; index += 1) {
    const position = text.length;
    const watch = new Stopwatch();

    // 1. Draft
    const k = length.start(end - position - 1);
    const drafted = k ? draft.write(text.slice(draft.length), k) : [];
    watch.lap();

    // 2. Verify
    target.forward([text.at(-1), ...drafted], k + 1);
    watch.lap();

    // 3. Accept
    let accepted = 0;
    let token = target.best(0);
    while (accepted < k && token === drafted[accepted]) token = target.best((accepted += 1));
    const outcome = truncateAtEos(accepted, token, drafted, eosIds);
    text.push(...outcome.emitted);

    // 4. Roll back
    target.rollback(position + outcome.kept);
    draft?.rollback(position + outcome.kept);
    length.observe(outcome.kept, outcome.compared);
    watch.lap();

    // 5. Record
    if (outcome.ended) finish = "eos";
    else if (text.length >= end) finish = "length";
    else if (isStopped()) finish = "stopped";
    const [draftS, verifyS, otherS] = watch.laps;
    length.timed(k, k + 1, draftS, verifyS);
    const times = { draft_s: draftS, verify_s: verifyS, other_s: otherS, prefill_s: index ? 0 : prefillS };
    const by = { drafted_by: k ? DRAFT_MODEL : "", draft_steps: k };
    yield { index, position, ...describe(target, draft, drafted, accepted, outcome), ...times, finish, ...by };
  }
}

/** The lanes of a run, the baseline without drafts. */
export function lanesOf(passes, { length, ...run }) {
  const [target, draft, alone] = [SPECULATIVE, DRAFT, BASELINE].map((lane) => new Model(passes, lane));
  const baseline = speculate({ target: alone, length: new FixedLength(0), ...run });
  return { [SPECULATIVE]: speculate({ target, draft, length, ...run }), [BASELINE]: baseline };
}

/** Advance the lane with the fewest seconds so far, again and again; yield its name and what it yields. */
export function* race(lanes) {
  const clocks = new Map(Object.keys(lanes).map((name) => [name, 0]));
  while (clocks.size) {
    const [name] = [...clocks].reduce((first, lane) => (lane[1] < first[1] ? lane : first));
    const { value, done } = lanes[name].next();
    if (done) clocks.delete(name);
    else {
      if (value.share === undefined) clocks.set(name, clocks.get(name) + value.prefill_s + secondsOf(value));
      yield { lane: name, value };
    }
  }
}

function truncateAtEos(accepted, token, drafted, eosIds) {
  const written = [...drafted.slice(0, accepted), token];
  const end = written.findIndex((id) => eosIds.includes(id));
  const emitted = end < 0 ? written : written.slice(0, end + 1);
  const kept = Math.min(accepted, emitted.length);
  const own = emitted.length > accepted;
  const compared = own ? Math.min(drafted.length, accepted + 1) : kept;
  return { emitted, kept, own, compared, ended: end >= 0 };
}

// Returns the records of the draft tokens and of the target's own token, with probabilities at temperature 1.
function describe(target, draft, drafted, accepted, { kept, compared, own, emitted }) {
  const records = drafted.map((id, index) => {
    const [q, p] = [draft.distribution(index), target.distribution(index)];
    const agrees = Number(index <= accepted ? index < accepted : p.top[0][0] === id);
    const verdict = { status: index < kept ? "accepted" : "discarded", compared: index < compared, rejected: index >= kept && index < compared };
    const raw = { raw_q: q.top[0][1], raw_p: p.of(id) };
    return { id, q: 1, p: agrees, ...verdict, accept_prob: agrees, u: null, noise: null, ...raw, draft_top: q.top, target_top: p.top };
  });
  if (!own) return { drafted: records, emission: null };
  const { top, of } = target.distribution(accepted);
  const id = emitted.at(-1);
  const status = accepted < drafted.length ? "corrected" : "bonus";
  const gap = top[1][1] > 0 ? top[0][1] - top[1][1] : null;
  return { drafted: records, emission: { id, status, prob: 1, raw_prob: of(id), noise: null, residual_mass: null, top, gap } };
}

function distribution(logits, idMap) {
  const top = [];
  for (let index = 0; index < logits.length; index += 1) {
    if (top.length === TOP && logits[index] <= logits[top.at(-1)]) continue;
    const place = top.findIndex((other) => logits[index] > logits[other]);
    top.splice(place < 0 ? top.length : place, 0, index);
    top.length = Math.min(top.length, TOP);
  }
  const largest = logits[top[0]];
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0);
  const of = (index) => Math.exp(logits[index] - largest) / total;
  return { top: top.map((index) => [idMap ? Number(idMap[index]) : index, of(index)]).filter(([, probability]) => probability > 0), of };
}

/** Use the number of threads with the fastest pass; the page that is drawn meanwhile disturbs most of them. */
export function chooseThreads(passes) {
  const counts = [];
  for (let count = passes.threads; count >= 1; count = Math.floor(count / 2)) counts.push(count);
  const times = interleaved(counts, (count) => passes.run(BASELINE, [1, 1], MEASURED_AT, 2, { threads: count }));
  passes.threads = counts.reduce((first, count) => (times.get(count).fastest < times.get(first).fastest ? count : first));
}

/** The pass costs, as `Calibration` in records/trace.py. The target needs no warm-up after `chooseThreads`. */
export function calibrate(passes, maxK) {
  const counts = Array.from({ length: maxK + 1 }, (_, index) => index + 1);
  const times = interleaved(counts, (count) => passes.run(BASELINE, Array(count).fill(1), MEASURED_AT, count), 0);
  const cost = counts.map((count) => Math.min(...counts.filter((more) => more >= count).map((more) => times.get(more).median)));
  const drafts = interleaved([DRAFTED], (steps) => passes.run(DRAFT, [1], MEASURED_AT, 1, { steps })).get(DRAFTED);
  const scatters = [...times.values()].map((one) => one.scatter);
  return {
    step_s: cost[0],
    c: drafts.median / DRAFTED / cost[0],
    v: cost.map((seconds) => seconds / cost[0]),
    row_floor: null,
    rows: [],
    scatter: Math.max(quantile(scatters, 0.5), drafts.scatter),
  };
}

// Times `act` for each count in turns, of which the first `warmUps` do not count.
function interleaved(counts, act, warmUps = 1) {
  const times = new Map(counts.map((count) => [count, []]));
  const begin = performance.now();
  for (let turn = 0; turn < warmUps + REPEATS; turn += 1) {
    const isLate = performance.now() - begin > 1000 * MAX_SECONDS;
    if (isLate && turn >= warmUps + MIN_REPEATS) break;
    for (const count of isLate && turn > warmUps ? counts.slice(0, SHORT_PASSES) : counts) {
      const watch = new Stopwatch();
      act(count);
      watch.lap();
      if (turn >= warmUps) times.get(count).push(watch.laps[0]);
    }
  }
  return new Map([...times].map(([count, seconds]) => [count, { fastest: Math.min(...seconds), median: quantile(seconds, 0.5), scatter: scatter(seconds) }]));
}
