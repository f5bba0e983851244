import assert from "node:assert/strict";
import { test } from "node:test";

import { rateWords } from "../../../specdemo/ui/static/learn/rates.js";

/** A finished run with drafts of these lengths; 4 draft tokens accepted of 6 compared, all in the first draft. */
function finished(drafts, k = 4) {
  const totals = { accepted_by_position: [3, 1], compared_by_position: [4, 2], tokens: 9 };
  const entries = drafts.map((length) => ({ round: { drafted: Array(length).fill({ status: "discarded" }) } }));
  if (drafts[0]) entries[0].round.drafted = Array(drafts[0]).fill({ status: "accepted" });
  return { start: { run: { config: { k } } }, end: { totals }, entries: () => entries };
}

test("each program's figure has its own denominator", () => {
  assert.deepEqual(rateWords(finished([4, 4, 0, 2, 0])), {
    compared: "67%", // 4 of 6
    drafted: "40%", // 4 of 10
    possible: "20%", // 4 of 5 × 4
    tau: "1.80", // 9 ÷ 5
    drafted_pass: "2.33", // 1 + 4 ÷ 3
    accepted_pass: "1.33", // 4 ÷ 3
  });
});

test("figures that are not defined are dashes", () => {
  assert.equal(rateWords(finished([4], "auto")).possible, "–");
  for (const trace of [undefined, null, { start: null, end: null }]) {
    assert.deepEqual(new Set(Object.values(rateWords(trace))), new Set(["–"]));
  }
  assert.equal(rateWords(finished([0, 0])).drafted_pass, "–");
});
