import assert from "node:assert/strict";
import { test } from "node:test";

import { speedupLabel } from "../../../specdemo/ui/static/stage/figures.js";

const label = (speedup, trust = {}, alone = 64) => speedupLabel({ speedup, baseline_tokens: alone }, trust);
const SPREAD = { low: 1.31, high: 1.63, typical: 1.5, disturbed: false };

test("the label of the speedup tells how far it can be trusted", () => {
  assert.equal(label(null), "shown after 8 tokens");
  assert.equal(label(null, {}, 0), "speedup");
  assert.equal(label(0.994), "slower");
  assert.equal(label(1.47, { spread: SPREAD, speedups: [1.47] }), "speedup (1.3–1.6)");
  assert.equal(label(1.47, { spread: SPREAD, doubt: "disturbed", speedups: [1.47] }), "speedup, disturbed");
  assert.equal(label(4.85, { spread: SPREAD, doubt: "above τ" }), "speedup, above τ", "while the run is in progress");
  assert.equal(label(1.04, { spread: { low: 0.9, high: 1.2 }, doubt: "undecided" }), "speedup (0.9–1.2)");
  assert.equal(label(1.47, { spread: SPREAD, speedups: [1.4, 1.47, 1.5] }), "speedup, median of 3");
  assert.equal(label(1.47, { spread: null }), "speedup", "a watched server's");
});
