// The measured figures of a greedy run and their theory: records/figures.py and records/theory.py for a browser.

import { breakEvenAlpha, theoreticalSpeedup } from "../lab/theory.js";
import { sum } from "../stage/charts.js";
import { BASELINE, DRAFT, SPECULATIVE } from "../stage/trace.js";

const MIN_TOKENS = 8;
const GRAM = 4;
const MIN_GRAMS = 16;

export const secondsOf = ({ draft_s: draft, verify_s: verify, other_s: other }) => draft + verify + other;
const ratio = (top, bottom) => (top !== null && bottom ? top / bottom : null);

/** The ids that a round adds to the text. */
export function emitted({ drafted, emission }) {
  const kept = drafted.filter(({ status }) => status === "accepted").map(({ id }) => id);
  return emission ? [...kept, emission.id] : kept;
}

class LaneTally {
  constructor() {
    const sums = { passes: 0, drafted: 0, accepted: 0, steps: 0, draft_s: 0, verify_s: 0, other_s: 0, prefill_s: 0, cost: 0 };
    Object.assign(this, sums, { first: null, compared: [], acceptedAt: [], ids: [], emissions: new Map() });
  }

  add(round, calibration) {
    const { drafted, emission } = round;
    this.first ??= round.prefill_s + secondsOf(round);
    this.passes += 1;
    this.drafted += drafted.length;
    this.accepted += drafted.filter(({ status }) => status === "accepted").length;
    this.steps += round.draft_steps;
    for (const name of ["draft_s", "verify_s", "other_s", "prefill_s"]) this[name] += round[name];
    if (calibration) this.cost += round.draft_steps * calibration.c + calibration.v[drafted.length];
    this.ids.push(...emitted(round));
    if (emission) this.emissions.set(this.ids.length - 1, emission);
    drafted.forEach(({ compared, status }, place) => {
      this.compared[place] = (this.compared[place] ?? 0) + compared;
      this.acceptedAt[place] = (this.acceptedAt[place] ?? 0) + (compared && status === "accepted");
    });
  }

  get tokens() {
    return this.ids.length;
  }
}

/** The running figures of a greedy run; `totals` are those of `Totals` in records/figures.py. */
export class Tally {
  constructor(calibration) {
    this.calibration = calibration;
    this.lanes = Object.fromEntries([SPECULATIVE, BASELINE, DRAFT].map((name) => [name, new LaneTally()]));
  }

  add(lane, round) {
    this.lanes[lane].add(round, this.calibration);
  }

  totals() {
    const { speculative: spec, baseline: base, draft: alone } = this.lanes;
    const [seconds, baseSeconds, aloneSeconds] = [spec, base, alone].map(secondsOf);
    const [rate, baseRate] = [ratio(spec.tokens, seconds), ratio(base.tokens, baseSeconds)];
    const isLong = Math.min(spec.tokens, base.tokens) >= MIN_TOKENS;
    const shape = this.shape();
    const alpha = ratio(sum(spec.acceptedAt), sum(spec.compared));
    const divergence = firstDifference(spec.ids, base.ids);
    const whole = (lane, time) => ratio(lane.tokens, time + lane.prefill_s);
    return {
      tokens: spec.tokens,
      baseline_tokens: base.tokens,
      passes: spec.passes,
      baseline_passes: base.passes,
      passes_saved: spec.tokens - spec.passes,
      seconds,
      baseline_seconds: baseSeconds,
      ttft_s: spec.first,
      baseline_ttft_s: base.first,
      tokens_per_s: rate,
      baseline_tokens_per_s: baseRate,
      speedup: isLong ? ratio(rate, baseRate) : null,
      speedup_end_to_end: isLong ? ratio(whole(spec, seconds), whole(base, baseSeconds)) : null,
      alpha_compared: alpha,
      alpha_drafted: ratio(spec.accepted, spec.drafted),
      tau: ratio(spec.tokens, spec.passes),
      compared_by_position: [...spec.compared],
      accepted_by_position: [...spec.acceptedAt],
      draft_s: spec.draft_s,
      verify_s: spec.verify_s,
      other_s: spec.other_s,
      baseline_verify_s: base.verify_s,
      baseline_other_s: base.other_s,
      overhead: ratio(spec.other_s, seconds),
      s_theory: alpha === null || !shape ? null : theoreticalSpeedup({ ...shape, alpha }),
      s_cost: ratio(spec.tokens, spec.cost),
      break_even_alpha: shape && breakEvenAlpha(shape),
      identical: base.tokens ? divergence === null : null,
      divergence,
      divergence_gap: (divergence !== null && base.emissions.get(divergence)?.gap) || null,
      draft_alone_tokens: alone.tokens,
      draft_alone_seconds: aloneSeconds,
      draft_alone_tokens_per_s: ratio(alone.tokens, aloneSeconds),
      draft_divergence: firstDifference((base.tokens ? base : spec).ids, alone.ids),
    };
  }

  /** The mean round of the speculative lane as a point of the theory, all costs in `c`; null without calibration or drafts. */
  shape() {
    const { calibration: costs, lanes } = this;
    const { drafted, passes, steps } = lanes[SPECULATIVE];
    if (!costs || !drafted) return null;
    const k = drafted / passes;
    const below = Math.floor(k);
    const above = Math.min(below + 1, costs.v.length - 1);
    const cost = (steps / passes) * costs.c + costs.v[below] + (k - below) * (costs.v[above] - costs.v[below]);
    return { k, c: (cost - 1) / k, growth: 0 };
  }
}

function firstDifference(left, right) {
  const end = Math.min(left.length, right.length);
  for (let place = 0; place < end; place += 1) if (left[place] !== right[place]) return place;
  return null;
}

/** The k with the most expected tokens per cost if draft token i is accepted with probability `rates[i]`. */
export function bestLength(rates, { c, v }) {
  let best = { k: 0, value: 1 / v[0] };
  let [tokens, survival] = [1, 1];
  for (let k = 1; k <= rates.length && k < v.length; k += 1) {
    survival *= rates[k - 1];
    tokens += survival;
    const value = tokens / (k * c + v[k]);
    if (value > best.value) best = { k, value };
  }
  return best.k;
}

/** Distinct ÷ all runs of four tokens in the output; null for a short output. */
export function distinctShare(rounds) {
  const ids = rounds.flatMap(emitted);
  const grams = ids.slice(GRAM - 1).map((_, first) => ids.slice(first, first + GRAM).join());
  return grams.length >= MIN_GRAMS ? new Set(grams).size / grams.length : null;
}
