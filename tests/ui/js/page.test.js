import assert from "node:assert/strict";
import { test } from "node:test";

import { keepSettings, partIn, runWith, settingsAfterRun, tabIn } from "../../../specdemo/ui/static/common/page.js";

test("the fragment of an address names a tab, or none", () => {
  assert.equal(tabIn("#tab=lab"), "lab");
  assert.deepEqual([tabIn, partIn].map((named) => named("#tab=lab&part=what-if")), ["lab", "what-if"]);
  assert.equal(partIn("#tab=lab"), null);
  for (const other of ["", "#", "#part=what-if", "#tab=lab&part=", "#tab=lab&part=a]", "#lab", "#tab=", "#tab=a-b", "#x#tab=lab", "#tab=<b>"]) assert.equal(tabIn(other), null, other);
});

test("after a component's run its settings return to the visitor's, except for those that the visitor has changed", (t) => {
  globalThis.document = { querySelector: () => ({ click: () => {} }) };
  t.after(() => delete globalThis.document);
  const names = ["prompt", "k", "auto", "repeats"];
  const updates = (values) => settingsAfterRun(names, { repeats: 1 }, values).map(({ __type__, ...change }) => change);
  keepSettings(["mine", 6, true, 1]);
  runWith(["lesson", 4, false, 3]);
  assert.deepEqual(updates(["my next", 4, false, 3]), [{}, { value: 6, interactive: false }, { value: true }, { value: 1 }]);
  assert.deepEqual(updates(["my next", 6, true, 3]), [{}, {}, {}, { value: 1 }], "a run of the visitor changes nothing");
});
