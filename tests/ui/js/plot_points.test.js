import assert from "node:assert/strict";
import { test } from "node:test";

import {
  acceptancePoints,
  axisReach,
  BAR_GAP,
  pointsOf,
  positionPoints,
  racePoints,
  speedupPoints,
  timePoints,
} from "../../../specdemo/ui/static/charts.js";
import { Trace } from "../../../specdemo/ui/static/trace.js";
import { round, roundEvent, START, TOTALS } from "./made.js";

const BAR = 1 - BAR_GAP;
const EACH = { bin: 1, last: 12, marked: true };

function entriesOf(...rounds) {
  const trace = new Trace();
  trace.take(START);
  for (const made of rounds) {
    const figures = { tau: made.index + 1, alpha_compared: made.index / 2, speedup: null, s_theory: 2 };
    trace.take(roundEvent("speculative", made, figures));
  }
  return trace.entries("speculative");
}

test("bars are accepted and discarded tokens; marks stand over the rounds of their kind, none where nothing was drafted", () => {
  const ended = round(3, ["accepted", "discarded"], 1, { emission: null });
  const empty = round(2, []);
  const entries = entriesOf(round(0, ["accepted", "rejected", "discarded"]), round(1, ["accepted"]), empty, ended);
  assert.deepEqual(acceptancePoints(entries, 0.5, EACH), {
    accepted: { x: [1, 2, 3, 4], y: [1, 1, 0, 1] },
    discarded: { x: [1, 2, 3, 4], y: [2, 0, 0, 1] },
    corrected: { x: [1], y: [3.5] },
    bonus: { x: [2], y: [1.5] },
  });
});

test("lines over rounds are the figures sent with them; null stays a gap", () => {
  const entries = entriesOf(round(0, ["accepted"]), round(1, ["accepted"]));
  assert.deepEqual(pointsOf("rates", { played: { speculative: entries } }), { alpha: { x: [1, 2], y: [0, 0.5] }, tau: { x: [1, 2], y: [1, 2] } });
  assert.deepEqual(speedupPoints(entries, null), {
    speedup: { x: [1, 2], y: [null, null] },
    theory: { x: [1, 2], y: [2, 2] },
    "speedup-lead": { x: [2], y: [null] },
  });
});

test("the lines of the speedup end at the figures of the moment", () => {
  const entries = entriesOf(round(0, ["accepted"]), round(1, ["accepted"]));
  assert.deepEqual(speedupPoints(entries, { speedup: 1.5, s_theory: 1.75 }), {
    speedup: { x: [1, 2], y: [null, 1.5] },
    theory: { x: [1, 2], y: [2, 1.75] },
    "speedup-lead": { x: [2], y: [1.5] },
  });
  assert.deepEqual(speedupPoints([], { speedup: 1, s_theory: 1 }), { speedup: {}, theory: {}, "speedup-lead": {} });
});

test("rounds that share a bar are shown by their means, without marks; the last bar ends with the axis", () => {
  const entries = entriesOf(
    round(0, ["accepted", "accepted", "rejected"]),
    round(1, ["rejected"]),
    round(2, ["accepted", "rejected", "discarded"]),
  );
  const shown = acceptancePoints(entries, 0.5, { bin: 2, last: 3, marked: false });
  assert.deepEqual(shown, {
    accepted: { x: [1.5, 3], y: [1, 1], width: [2 * BAR, BAR] },
    discarded: { x: [1.5, 3], y: [1, 2], width: [2 * BAR, BAR] },
    corrected: {},
    bonus: {},
  });
  const begun = acceptancePoints(entries.slice(0, 1), 0.5, { bin: 2, last: 100, marked: false });
  assert.deepEqual([begun.accepted.x, begun.accepted.y, begun.accepted.width], [[1.5], [2], [2 * BAR]]);
});

test("what has no point yet keeps the skeleton's blank one", () => {
  assert.deepEqual(acceptancePoints([], 0.5, EACH), { accepted: {}, discarded: {}, corrected: {}, bonus: {} });
  assert.deepEqual([timePoints(null, true), positionPoints(undefined)], [{}, {}]);
});

test("each lane races on its own clock; a lane that does not run is hidden", () => {
  const entry = (totals) => ({ totals });
  const points = racePoints({
    speculative: [entry({ seconds: 1, tokens: 3, baseline_tokens: 9 }), entry({ seconds: 2, tokens: 5 })],
    draft: [entry({ draft_alone_seconds: 0.5, draft_alone_tokens: 7 })],
  });
  assert.deepEqual(points.speculative, { x: [1, 2], y: [3, 5] });
  assert.deepEqual(points["speculative-lead"], { x: [2], y: [5] });
  assert.deepEqual(points.draft, { x: [0.5], y: [7] });
  assert.deepEqual([points.baseline, points["baseline-lead"]], [{ visible: false }, { visible: false }]);
  assert.deepEqual(racePoints({ baseline: [] }).baseline, {});
});

test("seconds are stacked by what they went to, with their sum in words", () => {
  assert.deepEqual(timePoints(TOTALS, true), {
    drafting: { x: [3, 0] },
    verifying: { x: [1, 11] },
    rest: { x: [0.25, 1], text: ["4.25 s", "12.0 s"] },
  });
  assert.deepEqual(timePoints(TOTALS, false).rest.text, ["4.25 s", "not run"]);
});

test("acceptance by place is among the compared, with the counts; none compared is a gap", () => {
  const { x, y, text } = positionPoints(TOTALS).position;
  assert.deepEqual(x, [1, 2, 3]);
  assert.deepEqual(y, [0.6, 0.75, null]);
  assert.deepEqual(text, ["12 of 20", "3 of 4", "0 of 0"]);
});

test("axes reach over all that has arrived, or at first over the target's next tokens", () => {
  const trace = new Trace();
  assert.deepEqual(axisReach("race", null), { x: 0, y: 16 });
  const config = { ...START.run.config, draft_alone: true };
  trace.take({ ...START, run: { ...START.run, config, calibration: { step_s: 0.5 } } });
  assert.deepEqual(axisReach("race", trace), { x: 8, y: 16 });
  assert.deepEqual(axisReach("time", trace), { x: 8 });
  trace.take(roundEvent("speculative", round(0, []), { ...TOTALS, seconds: 9, tokens: 40 }));
  trace.take(roundEvent("baseline", round(0, []), { ...TOTALS, baseline_seconds: 5, baseline_tokens: 50 }));
  trace.take(roundEvent("draft", round(0, []), { ...TOTALS, draft_alone_seconds: 30, draft_alone_tokens: 45 }));
  assert.deepEqual(axisReach("race", trace), { x: 30, y: 50 });
  assert.deepEqual(axisReach("time", trace), { x: 9 }, "the draft alone has no bar");
  assert.deepEqual(axisReach("rates", trace), { x: 1.5 });
  assert.deepEqual(axisReach("position", trace), { x: 3.5 });
});
