import assert from "node:assert/strict";
import { test } from "node:test";

import { cellsOf, pointsDone, requestOf, sideFigures } from "../../../specdemo/ui/static/lab.js";
import { runWords, slidersOf } from "../../../specdemo/ui/static/lab_theory.js";

const POINT = { label: "k = 4", runs: 3, speedup: 1.456, s_theory: null, alpha: 0.655, tau: 2, c: 0.05317, tokens_per_s: 91.26, baseline_tokens_per_s: 48 };

test("figures are rounded, and an undefined figure is a dash", () => {
  assert.deepEqual(cellsOf(POINT), ["k = 4", "1.46×", "–", "66%", "2.00", "91.3", "48.0"]);
});

test("a side has its figures", () => {
  const plain = (point) => sideFigures(point).replaceAll("\u00a0", " ");
  assert.equal(plain(POINT), "α 66% · τ 2.00 · c 0.053");
  assert.equal(plain({ ...POINT, c: null }), "α 66% · τ 2.00 · c –");
});

test("a run sets the sliders within their ranges", () => {
  const reach = { alpha: [0, 1], k: [1, 12], c: [0, 1], growth: [0, 1] };
  const point = { alpha: 0.44, k: 3.6, c: 1.7, growth: -0.001 };
  assert.deepEqual(slidersOf(point, reach), { alpha: 0.44, k: 4, c: 1, growth: 0 });
  assert.equal(slidersOf({ ...point, k: 0.2 }, reach).k, 1);
});

test("a run is shown with its theory, and measured only if it raced", () => {
  const point = { alpha: 0.44, k: 3.92, c: 0.0417, speedup: 1.11, s_theory: 1.41 };
  assert.equal(runWords(point), "The last run (α 44%, k 3.9, c 0.042): speedup 1.11× measured, 1.41× in theory.");
  assert.equal(runWords({ ...point, speedup: null }), "The last run (α 44%, k 3.9, c 0.042): speedup 1.41× in theory.");
});

test("a form's numbers become numbers, anything else goes to the server unchanged", () => {
  const asked = requestOf({ experiment: "drafter", max_new_tokens: "32", prompts: "", temperature: "hot", prompt: "12", mode: "raw" });
  assert.deepEqual(asked, { experiment: "drafter", max_new_tokens: 32, prompts: "", temperature: "hot", prompt: "12", mode: "raw" });
});

test("progress is counted in points", () => {
  assert.equal(pointsDone(3, 12), "3 of 12 points");
  assert.equal(pointsDone(0, 12), "Measuring the first of 12 points");
});
