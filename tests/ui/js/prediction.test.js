import assert from "node:assert/strict";
import { test } from "node:test";

import { comparisonWords, estimatedSpeedup, meanAccepted, nextTry, PREDICTIONS, triedWords } from "../../../specdemo/ui/static/stage/prediction.js";

const TOTALS = { accepted_by_position: [9, 2, 1, 0], passes: 10, speedup: 1.4, alpha_compared: 0.5 };

test("the mean number of accepted draft tokens is that of the run's own figures", () => {
  assert.equal(meanAccepted(TOTALS), 1.2);
  assert.equal(meanAccepted({ ...TOTALS, passes: 0 }), null);
});

test("the measured options follow from the figures", () => {
  const options = (totals, doubt = null) => PREDICTIONS.map(({ option }) => option({ totals, doubt }));
  assert.deepEqual(options(TOTALS), [0, 1]);
  assert.deepEqual(options({ ...TOTALS, speedup: 0.9, passes: 4 }), [1, 3]);
  assert.deepEqual(options({ ...TOTALS, speedup: null, passes: 0 }), [null, null]);
  for (const doubt of ["disturbed", "above τ", "undecided"]) assert.deepEqual(options(TOTALS, doubt), [null, 1], doubt);
});

test("the comparison names the predictions and the measured figures", () => {
  const words = "Speed: ✓ right. Accepted tokens: ✗ wrong. Predicted: faster, 3 of 4 accepted. Measured: speedup 1.40×, 1.2 of 4 accepted (α 50%: compared tokens only).";
  assert.equal(comparisonWords([0, 3], { totals: TOTALS }), words);
  assert.match(comparisonWords([0, 3], { totals: TOTALS, doubt: "disturbed" }), /Measured: speedup 1\.40× \(disturbed\), 1\.2 of 4/);
  assert.equal(comparisonWords([1, 3], { totals: { ...TOTALS, speedup: null, alpha_compared: null } }), "Speed: – no verdict. Accepted tokens: ✗ wrong. Predicted: slower, 3 of 4 accepted. Measured: 1.2 of 4 accepted.");
});

test("the button promises a result only if the estimate is clear, and the page says what the run showed", () => {
  const words = (speedup, estimate) => nextTry({ speedup }, () => estimate).words;
  assert.deepEqual([0.8, 0.95, null].map((estimate) => words(1.4, estimate)), ["Make it slower: k = 12", "Try k = 12", "Try k = 12"]);
  assert.deepEqual([1.2, 1.05, null].map((estimate) => words(0.8, estimate)), ["Make it faster: k = 1", "Try k = 1", "Try k = 1"]);
  assert.equal(words(null, 0.5), "Try k = 12");
  const shown = "k = 12. Measured: 1.2 of 12 draft tokens accepted per round, at 1.50× the speed of the target alone. With k = 4: 1.40×.";
  assert.equal(triedWords(12, { totals: { ...TOTALS, speedup: 1.5 } }, { totals: TOTALS }), shown);
  const doubted = { totals: TOTALS, doubt: "undecided", spread: { low: 0.9, high: 1.9 } };
  assert.match(triedWords(12, { totals: TOTALS, doubt: "above τ" }, doubted), /at 1\.40× \(above τ\) the speed.* With k = 4: 1\.40× \(0\.9–1\.9\)\.$/);
});

test("another draft length is estimated from the times of the run and its acceptance by position", () => {
  const totals = { ...TOTALS, draft_s: 2, verify_s: 10, other_s: 1, passes: 10, baseline_seconds: 22, baseline_tokens: 22 };
  const rounds = Array.from({ length: 10 }, () => ({ round: { drafted: [{}, {}] } }));
  const run = { calibration: { v: [1, 1, 1, 2] } };
  const end = { totals: { ...totals, accepted_by_position: [8, 4], compared_by_position: [10, 8] } };
  const trace = { start: { run }, end, entries: () => rounds };
  assert.equal(estimatedSpeedup(trace, 2).toFixed(6), (2.2 / 1.3).toFixed(6), "as drafted");
  assert.equal(estimatedSpeedup(trace, 3).toFixed(6), (2.4 / 2.4).toFixed(6), "position 3 has the rate α");
  assert.equal(estimatedSpeedup(trace, 4), null, "v(5) is unknown");
});
