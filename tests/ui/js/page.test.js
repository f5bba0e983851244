import assert from "node:assert/strict";
import { test } from "node:test";

import { partIn, startRun, tabIn } from "../../../specdemo/ui/static/common/page.js";

test("the fragment of an address names a tab, or none", () => {
  assert.equal(tabIn("#tab=lab"), "lab");
  assert.deepEqual([tabIn, partIn].map((named) => named("#tab=lab&part=what-if")), ["lab", "what-if"]);
  assert.equal(partIn("#tab=lab"), null);
  for (const other of ["", "#", "#part=what-if", "#tab=lab&part=", "#tab=lab&part=a]", "#lab", "#tab=", "#tab=a-b", "#x#tab=lab", "#tab=<b>"]) assert.equal(tabIn(other), null, other);
});

test("a component starts no second run while one is running", (t) => {
  t.after(() => delete globalThis.document);
  const started = [];
  for (const running of [true, false]) {
    globalThis.document = { querySelector: (selector) => (selector === "#run:disabled" && running ? {} : null) };
    startRun((event, value) => started.push([event, value]), `running=${running}`);
  }
  assert.deepEqual(started, [["submit", { address: "running=false" }]]);
});
