import assert from "node:assert/strict";
import { test } from "node:test";

import { pointsDone } from "../../../specdemo/ui/static/lab.js";
import { cellsOf, requestOf, runWords, shownAs, sideWords, sliderWords, slidersOf } from "../../../specdemo/ui/static/lab_theory.js";

const POINT = { label: "k = 4", runs: 3, speedup: 1.456, s_theory: null, alpha: 0.655, tau: 2, c: 0.05317, tokens_per_s: 91.26, baseline_tokens_per_s: 48 };

test("figures are rounded, and what is not defined is a dash", () => {
  assert.deepEqual(cellsOf(POINT), ["k = 4", "1.46×", "–", "66%", "2.00", "91.3", "48.0"]);
  assert.deepEqual(Object.values(shownAs).map((shown) => shown(null)), ["–", "–", "–", "–"]);
});

test("a side says what it is", () => {
  const plain = (words) => words.map((text) => text.replaceAll("\u00a0", " "));
  assert.deepEqual(plain(sideWords(POINT)), ["k = 4", "α 66% · τ 2.00 · c 0.053"]);
  assert.deepEqual(plain(sideWords({ ...POINT, c: null })), ["k = 4", "α 66% · τ 2.00 · c –"]);
});

test("a run sets the sliders as far as they reach", () => {
  const reach = { alpha: [0, 1], k: [1, 12], c: [0, 1], growth: [0, 1] };
  const point = { alpha: 0.44, k: 3.6, c: 1.7, growth: -0.001 };
  assert.deepEqual(slidersOf(point, reach), { alpha: 0.44, k: 4, c: 1, growth: 0 });
  assert.equal(slidersOf({ ...point, k: 0.2 }, reach).k, 1);
});

test("sliders say their value in the words of their unit", () => {
  assert.deepEqual(
    [sliderWords.alpha(0.6), sliderWords.k(4), sliderWords.c(0.1 + 0.2), sliderWords.growth(0.025)],
    ["60%", "4", "0.3", "+2.5%"],
  );
});

test("a run is told beside its theory, measured only if it raced", () => {
  const point = { alpha: 0.44, k: 3.92, c: 0.0417, speedup: 1.11, s_theory: 1.41 };
  assert.equal(runWords(point), "The last run (α 44%, k 3.9, c 0.042): 1.11× measured, 1.41× in theory.");
  assert.equal(runWords({ ...point, speedup: null }), "The last run (α 44%, k 3.9, c 0.042): 1.41× in theory.");
});

test("a form's numbers become numbers, anything else goes to the server as it is", () => {
  const asked = requestOf({ experiment: "drafter", max_new_tokens: "32", prompts: "", temperature: "hot", prompt: "12", mode: "raw" });
  assert.deepEqual(asked, { experiment: "drafter", max_new_tokens: 32, prompts: "", temperature: "hot", prompt: "12", mode: "raw" });
});

test("progress is told in points", () => {
  assert.equal(pointsDone(3, 12), "3 of 12 points");
  assert.equal(pointsDone(0, 12), "Measuring the first of 12 points");
});
