// Hand-made runs for the tests of the stage's modules.

import { Trace } from "../../../specdemo/ui/static/stage/trace.js";

/** A drafted token; `how` is "accepted", "rejected" or "discarded". */
export function token(id, how, facts = {}) {
  return {
    id,
    q: 0.5,
    p: 0.25,
    raw_q: null,
    raw_p: null,
    u: null,
    noise: null,
    accept_prob: null,
    status: how === "accepted" ? "accepted" : "discarded",
    compared: how !== "discarded",
    rejected: how === "rejected",
    draft_top: [],
    target_top: [],
    ...facts,
  };
}

/** The target's own token. */
export function own(id, status, facts = {}) {
  return { id, status, prob: 1, raw_prob: null, noise: null, residual_mass: null, top: [], gap: null, ...facts };
}

/** A round of `hows` that takes `seconds` of drafting, `seconds` of verifying and a tenth of it besides. */
export function round(index, hows, seconds = 1, more = {}) {
  const drafted = hows.map((how, place) => token(100 * index + place, how));
  const status = hows.includes("rejected") ? "corrected" : "bonus";
  return {
    index,
    drafted,
    emission: own(100 * index + 99, status),
    draft_s: drafted.length ? seconds : 0,
    verify_s: seconds,
    other_s: seconds / 10,
    prefill_s: 0,
    finish: null,
    drafted_by: "draft-model",
    ...more,
  };
}

export const START = {
  type: "start",
  run: { config: { prompt: "x", rule: "greedy", baseline: true, draft_alone: false }, version: 1 },
  pieces: { 1: "YQ==" },
  specials: [1, 2],
};

/** `{ type: "round" }` whose totals name the lane and round they came with. */
export function roundEvent(lane, made, totals = {}) {
  const of = `${lane} ${made.index}`;
  return { type: "round", lane, round: made, totals: { of, baseline_tokens: of, speedup: of, ...totals }, pieces: {} };
}

/** Two speculative rounds of 2.1 s and four baseline steps of 1.1 s, in the order of a race. */
export function smallTrace() {
  const trace = new Trace();
  const events = [
    START,
    roundEvent("speculative", round(0, ["accepted", "rejected"])),
    roundEvent("baseline", round(0, [])),
    roundEvent("baseline", round(1, [])),
    roundEvent("speculative", round(1, ["accepted", "accepted"], 1, { finish: "length" })),
    roundEvent("baseline", round(2, [])),
    roundEvent("baseline", round(3, [], 1, { finish: "length" })),
  ];
  for (const event of events) trace.take(event);
  return trace;
}

/** Figures that the charts show. */
export const TOTALS = {
  seconds: 4.25,
  draft_s: 3,
  verify_s: 1,
  other_s: 0.25,
  baseline_seconds: 12,
  baseline_verify_s: 11,
  baseline_other_s: 1,
  compared_by_position: [20, 4, 0],
  accepted_by_position: [12, 3, 0],
};
