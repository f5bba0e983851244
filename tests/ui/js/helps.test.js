import assert from "node:assert/strict";
import { test } from "node:test";

import { CHART_TERMS } from "../../../specdemo/ui/static/stage/charts.js";
import { helpOn } from "../../../specdemo/ui/static/stage/helps.js";

const TERMS = ["speedup", "tau", "alpha", "theory", "c", "v", "rounds", "rates", "race", "time", "position", "ranks", "entropy"];
const RUN = { config: { baseline: true }, calibration: { c: 0.117, v: [1, 1.02, 1.1, 1.3] } };
const TOTALS = {
  tokens: 30,
  passes: 14,
  tau: 30 / 14,
  alpha_compared: 16 / 28,
  accepted_by_position: [10, 6],
  compared_by_position: [16, 12],
  tokens_per_s: 9.91,
  baseline_tokens_per_s: 6.22,
  baseline_tokens: 30,
  seconds: 3.03,
  baseline_seconds: 4.82,
  draft_s: 0.606,
  verify_s: 2.273,
  other_s: 0.151,
  speedup: 1.593,
  s_theory: 1.72,
  break_even_alpha: 1 / 3,
};
const numbers = (term, totals = TOTALS, run = RUN) => helpOn(term, totals, run).numbers;

test("each term has a short sentence and a formula, and leads to other terms", () => {
  for (const chart of Object.keys(CHART_TERMS)) assert.ok(TERMS.includes(chart), chart);
  for (const term of TERMS) {
    const { title, sentence, formula, more } = helpOn(term, null, null);
    assert.ok(title.split(" ").length <= 5);
    assert.ok(sentence.split(" ").length <= 20, sentence);
    assert.match(sentence, /^[A-Z].*\.$/);
    assert.equal(sentence.replace("et al.", "").match(/[.!?]/g).length, 1, sentence);
    assert.match(formula, / = /);
    for (const other of more) assert.ok(TERMS.includes(other) && other !== term);
  }
});

test("the numbers come from the run", () => {
  assert.equal(numbers("alpha"), "16 of 28 = 57%");
  assert.equal(numbers("tau"), "30 ÷ 14 = 2.14");
  assert.equal(numbers("speedup"), "9.9 ÷ 6.2 tokens/s = 1.59× the speed. A round adds τ = 2.14 tokens and takes 1.35× as long as a token of the target alone");
  assert.match(numbers("speedup", { ...TOTALS, speedup: 0.944 }), /slower: 0\.94× the speed of the target alone\./);
  assert.equal(numbers("theory"), "α = 57%, c = 0.12: 1.72× the speed; break-even α = 33%");
  assert.equal(numbers("c"), "c = 0.12");
  assert.equal(numbers("rounds"), "14 rounds: 16 draft tokens + 14 target tokens = 30");
  const ended = "14 rounds: 16 draft tokens + 13 target tokens = 29; an accepted token ended the run, so the last round has no target token";
  assert.equal(numbers("rounds", { ...TOTALS, tokens: 29 }), ended);
  assert.match(helpOn("rounds", null, null).formula, /, or accepted if an accepted token ends the text$/);
  assert.match(numbers("rates", { ...TOTALS, passes: 1 }), /^after 1 round α/);
  assert.equal(numbers("rates"), "after 14 rounds α = 57%, τ = 2.14");
  assert.equal(numbers("race"), "30 tokens in 3.03 s; the target alone 30 in 4.82 s");
  assert.equal(numbers("time"), "draft 20%, target 75%, rest 5% of 3.03 s");
  assert.equal(numbers("position"), "1: 10 of 16, 2: 6 of 12");
  assert.equal(numbers("ranks"), "12 of 28 compared draft tokens rejected");
  assert.equal(numbers("entropy"), "16 of 28 compared draft tokens accepted");
  assert.equal(numbers("v"), "v(1) = 1.00, v(2) = 1.02, v(3) = 1.10, v(4) = 1.30");
});

test("every term has numbers before another lane's first round has ended", () => {
  const others = ["baseline_tokens", "baseline_tokens_per_s", "baseline_seconds", "speedup"];
  const early = { ...TOTALS, ...Object.fromEntries(others.map((name) => [name, null])) };
  for (const term of TERMS) assert.match(numbers(term, early), /./, term);
  assert.equal(numbers("race", early), "30 tokens in 3.03 s");
});

test("a term without numbers has the reason", () => {
  for (const term of TERMS) assert.equal(helpOn(term, null, null).numbers, "Figures appear after the first round.");
  assert.match(numbers("speedup", { ...TOTALS, speedup: null }), /8 tokens in each lane/);
  assert.match(numbers("speedup", { ...TOTALS, speedup: null }, { ...RUN, config: { baseline: false } }), /did not include the target alone/);
  assert.equal(numbers("alpha", { ...TOTALS, alpha_compared: null }), "No draft token has a known verdict yet.");
  assert.equal(numbers("rounds", { ...TOTALS, passes: null }), "This value was not measured for this run.");
  assert.equal(numbers("rounds", { ...TOTALS, accepted_by_position: [2, 1] }), "14 rounds: 30 tokens");
  assert.match(numbers("theory", { ...TOTALS, break_even_alpha: null }), /no α breaks even/);
  const unmeasured = { ...RUN, calibration: null };
  for (const term of ["theory", "c", "v"]) assert.equal(numbers(term, { ...TOTALS, s_theory: null }, unmeasured), "This value was not measured for this run.");
});
