import assert from "node:assert/strict";
import { test } from "node:test";

import { tabIn } from "../../../specdemo/ui/static/page.js";

test("the fragment of an address names a tab, or none", () => {
  assert.equal(tabIn("#tab=lab"), "lab");
  for (const other of ["", "#", "#lab", "#tab=", "#tab=a-b", "#x#tab=lab", "#tab=<b>"]) assert.equal(tabIn(other), null, other);
});
