import assert from "node:assert/strict";
import { test } from "node:test";

import { comparisonWords, meanAccepted, phasesOf, PREDICTIONS } from "../../../specdemo/ui/static/stage/prediction.js";

const TOTALS = { accepted_by_position: [9, 2, 1, 0], passes: 10, speedup: 1.4, identical: true };

test("the mean number of accepted draft tokens is that of the run's own figures", () => {
  assert.equal(meanAccepted(TOTALS), 1.2);
  assert.equal(meanAccepted({ ...TOTALS, passes: 0 }), null);
});

test("the measured options follow from the figures", () => {
  const options = (totals) => PREDICTIONS.map(({ option }) => option(totals));
  assert.deepEqual(options(TOTALS), [0, 1]);
  assert.deepEqual(options({ ...TOTALS, speedup: 0.9, passes: 4 }), [1, 3]);
  assert.deepEqual(options({ ...TOTALS, speedup: null, passes: 0 }), [null, null]);
});

test("the comparison names the predictions and the measured figures", () => {
  const words = "Predicted: faster, 3 of 4 draft tokens accepted. Measured: 1.40× the speed, 1.2 of 4 accepted.";
  assert.equal(comparisonWords([0, 3], TOTALS), `${words} Same text.`);
  assert.equal(comparisonWords([0, 3], { ...TOTALS, identical: false }), words);
  assert.equal(comparisonWords([1, 3], { ...TOTALS, speedup: null }), "Predicted: slower, 3 of 4 draft tokens accepted. Measured: 1.2 of 4 accepted. Same text.");
});

test("the first two rounds have three phases each, without a gap, and the third has none", () => {
  const round = (index) => ({ index, drafted: [{}, {}, {}, {}] });
  const entry = (index, from) => ({ round: round(index), from, draftEnd: from + 4, verifyEnd: from + 6, to: from + 7 });
  const phases = phasesOf([entry(0, 1), entry(1, 8), entry(2, 15)]);
  assert.deepEqual(phases.map(({ phase }) => phase), ["prompt", "draft", "verify", "verdict", "draft", "verify", "verdict"]);
  assert.deepEqual(phases.map(({ from }) => from), [0, 1, 5, 8, 9, 12, 15]);
  assert.deepEqual(phases.map(({ to }) => to), [1, 5, 8, 9, 12, 15, 16]);
  assert.deepEqual(phasesOf([]), []);
});
