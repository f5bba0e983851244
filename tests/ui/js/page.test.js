import assert from "node:assert/strict";
import { test } from "node:test";

import { partIn, settingsLine, tabIn } from "../../../specdemo/ui/static/common/page.js";

test("the fragment of an address names a tab, or none", () => {
  assert.equal(tabIn("#tab=lab"), "lab");
  assert.deepEqual([tabIn, partIn].map((named) => named("#tab=lab&part=what-if")), ["lab", "what-if"]);
  assert.equal(partIn("#tab=lab"), null);
  for (const other of ["", "#", "#part=what-if", "#tab=lab&part=", "#tab=lab&part=a]", "#lab", "#tab=", "#tab=a-b", "#x#tab=lab", "#tab=<b>"]) assert.equal(tabIn(other), null, other);
});

test("the line names the drafter as the menu does, or as it is called where the menu does not know it", () => {
  const labels = { "prompt-lookup": "prompt lookup" };
  assert.equal(settingsLine(labels, ["prompt-lookup", "greedy", 0, 64]), "prompt lookup · greedy · 64 tokens");
  assert.equal(settingsLine(labels, ["other", "rejection", 0.8, 8]), "other · rejection · temperature 0.8 · 8 tokens");
});
