import assert from "node:assert/strict";
import { test } from "node:test";

import { axisReach, entropyPoints, positionPoints, rankPoints, speedupPoints, timePoints } from "../../../specdemo/ui/static/stage/charts.js";
import { Trace } from "../../../specdemo/ui/static/stage/trace.js";
import { own, round, roundEvent, START, token, TOTALS } from "./made.js";

function entriesOf(...rounds) {
  const trace = new Trace();
  trace.take(START);
  for (const made of rounds) {
    const figures = { tau: made.index + 1, alpha_compared: made.index / 2, speedup: null, s_theory: 2 };
    trace.take(roundEvent("speculative", made, figures));
  }
  return trace.entries("speculative");
}

test("the lines of the speedup end at the figures of the moment", () => {
  const entries = entriesOf(round(0, ["accepted"]), round(1, ["accepted"]));
  assert.deepEqual(speedupPoints(entries, { speedup: 1.5, s_theory: 1.75 }), {
    speedup: { x: [1, 2], y: [null, 1.5] },
    theory: { x: [1, 2], y: [2, 1.75] },
    "speedup-lead": { x: [2], y: [1.5] },
  });
  assert.deepEqual(speedupPoints([], { speedup: 1, s_theory: 1 }), { speedup: {}, theory: {}, "speedup-lead": {} });
});

test("what has no point yet keeps the skeleton's blank one", () => {
  assert.deepEqual([timePoints(null, true), positionPoints(undefined)], [{}, {}]);
});

test("the target alone has taken no time before its first round has ended", () => {
  const trace = new Trace();
  trace.take(START);
  trace.take(roundEvent("speculative", round(0, ["accepted"], 0.1), TOTALS));
  trace.take(roundEvent("baseline", round(0, []), TOTALS));
  const totals = trace.totalsAt(0.5);
  assert.equal(totals.baseline_seconds, null);
  assert.deepEqual(timePoints(totals, true).rest.text, ["4.25 s", "0.00 s"]);
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

test("compared tokens are counted by the target's entropy, where tokens below the top five count as one", () => {
  const drafted = [
    token(1, "accepted", { target_top: [[1, 1]] }),
    token(2, "accepted", { target_top: [[2, 0.5], [3, 0.5]] }),
    token(4, "rejected", { target_top: [2, 3, 5, 6, 7].map((id) => [id, 0.125]) }),
    token(5, "discarded", { target_top: [[5, 1]] }),
  ];
  assert.deepEqual(entropyPoints(entriesOf({ ...round(0, []), drafted })), {
    entropy: { x: [1, 2, 3, 4, 5], y: [1, null, 1, null, 0], text: ["1 of 1", "", "1 of 1", "", "0 of 1"] },
  });
  assert.deepEqual(entropyPoints(entriesOf(round(0, ["accepted"]))), {}, "a trace without lists");
});
