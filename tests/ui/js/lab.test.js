import assert from "node:assert/strict";
import { test } from "node:test";

import { cellsOf, pointsDone, requestOf, sideFigures } from "../../../specdemo/ui/static/lab/lab.js";
import { bestLength, breakEvenDelay, certaintyWords, speedupOf } from "../../../specdemo/ui/static/lab/lab_what_if.js";
import { runWords, slidersOf } from "../../../specdemo/ui/static/lab/lab_theory.js";

const POINT = { label: "k = 4", runs: 3, speedup: 1.456, s_theory: null, alpha: 0.655, tau: 2, c: 0.05317, tokens_per_s: 91.26, baseline_tokens_per_s: 48 };

test("figures are rounded, and an undefined figure is a dash", () => {
  assert.deepEqual(cellsOf(POINT), ["k = 4", "1.46×", "–", "66%", "2.00", "91.3", "48.0"]);
  assert.equal(cellsOf({ ...POINT, disturbed: true })[1], "1.46× (disturbed)");
});

test("a side has its figures", () => {
  const plain = (point) => sideFigures(point).replaceAll("\u00a0", " ");
  assert.equal(plain(POINT), "α 66% · τ 2.00 · c 0.053");
  assert.equal(plain({ ...POINT, c: null }), "α 66% · τ 2.00 · c –");
  assert.equal(plain({ ...POINT, disturbed: true }), "α 66% · τ 2.00 · c 0.053 · disturbed");
});

test("a run sets the sliders within their ranges", () => {
  const reach = { alpha: [0, 1], k: [1, 12], c: [0, 1], growth: [0, 1] };
  const point = { alpha: 0.44, k: 3.6, c: 1.7, growth: -0.001 };
  assert.deepEqual(slidersOf(point, reach), { alpha: 0.44, k: 4, c: 1, growth: 0 });
  assert.equal(slidersOf({ ...point, k: 0.2 }, reach).k, 1);
});

test("a run is shown with its theory, and measured only if it raced", () => {
  const point = { alpha: 0.44, k: 3.92, c: 0.0417, speedup: 1.11, s_theory: 1.41 };
  const words = "α 44%, k 3.9, c 0.042, ";
  const answer = { source: "a recorded run (AMD EPYC, 2 threads)", measured: "1.11× (disturbed)" };
  assert.equal(runWords(point, answer), `The star marks ${answer.source}: ${words}measured speedup 1.11× (disturbed), theoretical speedup 1.41×.`);
  assert.equal(runWords({ ...point, speedup: null }, { source: "your last run", measured: "–" }), `The star marks your last run: ${words}theoretical speedup 1.41×.`);
});

test("a form's numbers become numbers, anything else goes to the server unchanged", () => {
  const asked = requestOf({ experiment: "drafter", max_new_tokens: "32", prompts: "", temperature: "hot", prompt: "12", mode: "raw" });
  assert.deepEqual(asked, { experiment: "drafter", max_new_tokens: 32, prompts: "", temperature: "hot", prompt: "12", mode: "raw" });
});

test("progress is counted in points", () => {
  assert.equal(pointsDone(3, 12), "3 of 12 points");
  assert.equal(pointsDone(0, 12), "Measuring the first of 12 points");
});

const ROUNDS = [[2, 0.03, 0.02, 0.01], [1, 0.01, 0.02, 0]]; // 2 × 60 ms + 30 ms

test("a hidden draft costs the longer of two times, a free one nothing, and each round waits for its round trip", () => {
  const seconds = (draft, delay) => Number((1 / speedupOf(ROUNDS, draft, delay, 1)).toFixed(9));
  assert.deepEqual(["measured", "hidden", "free"].map((draft) => seconds(draft, 0)), [0.15, 0.1, 0.08]);
  assert.deepEqual(["measured", "hidden", "free"].map((draft) => seconds(draft, 0.1)), [0.45, 0.38, 0.38]);
  assert.equal(seconds("hidden", 0.005), 0.105, "the draft of two rounds still takes longer");
});

test("at the break-even round trip the speedup is 1", () => {
  for (const draft of ["measured", "hidden", "free"]) {
    const even = breakEvenDelay(ROUNDS, draft, 0.6);
    assert.ok(Math.abs(speedupOf(ROUNDS, draft, even, 0.6) - 1) < 1e-6, draft);
  }
  assert.ok(Math.abs(breakEvenDelay(ROUNDS, "measured", 0.6) - 0.15) < 1e-6);
  assert.equal(breakEvenDelay(ROUNDS, "measured", 0.1), null, "slower without any");
});

test("round trips make longer drafts the best ones", () => {
  const length = (k, count) => ({ k, expected: [[count, 0.01 * k, 0.02, 0]] });
  const lengths = [{ k: 0, expected: [[1, 0, 0, 0]] }, length(1, 10), length(8, 5)];
  assert.equal(bestLength(lengths, "measured", 0, 1).k, 1);
  assert.deepEqual(bestLength(lengths, "measured", 0.1, 2), { k: 8, speedup: 2 });
});

test("the sentence says whether a draft length is known or estimated", () => {
  assert.equal(certaintyWords(0, 1, 1, 4), "All rounds use the draft lengths of the run.");
  assert.equal(certaintyWords(3, 1.501, 1.502, 4), "k = 3: tokens that were never drafted do not change this estimate.");
  assert.equal(certaintyWords(3, 1.2, 1.5, 1), "k = 3: between 1.20× and 1.50×, because 1 token was never drafted. The estimate uses the run’s α.");
});
