import assert from "node:assert/strict";
import { test } from "node:test";

import { acceptancePoints, axisReach, BAR_GAP, positionPoints, rankPoints, speedupPoints, timePoints } from "../../../specdemo/ui/static/charts.js";
import { Trace } from "../../../specdemo/ui/static/trace.js";
import { own, round, roundEvent, START, token, TOTALS } from "./made.js";

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

test("rejected tokens are counted by the draft's rank of the target's choice, and only where the draft has a list", () => {
  const rejectedFor = (id, draft_top) => (index) => ({ ...round(index, []), drafted: [token(1, "rejected", { draft_top })], emission: own(id, "corrected") });
  const list = [[1, 0.5], [2, 0.25], [3, 0.25]];
  const rounds = [rejectedFor(2, list), rejectedFor(2, list), rejectedFor(9, list), rejectedFor(2, []), (index) => round(index, ["accepted"])];
  assert.deepEqual(rankPoints(entriesOf(...rounds.map((made, index) => made(index)))), {
    ranks: { x: [1, 2, 3, 4, 5, 6], y: [0, 2, 0, 0, 0, 1], text: ["", "2", "", "", "", "1"] },
  });
  assert.deepEqual(rankPoints(entriesOf(round(0, ["rejected"]))), {});
});

test("the axis of ranks has room for the rounds that have arrived", () => {
  const trace = new Trace();
  assert.deepEqual(axisReach("ranks", trace), { x: 6.5, y: 4 });
  trace.take(START);
  for (let index = 0; index < 7; index += 1) {
    const drafted = [token(1, "rejected", { draft_top: [[1, 0.6], [2, 0.4]] })];
    trace.take(roundEvent("speculative", { ...round(index, []), drafted, emission: own(2, "corrected") }));
  }
  assert.deepEqual(axisReach("ranks", trace), { x: 6.5, y: 7 });
});
