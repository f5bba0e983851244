import assert from "node:assert/strict";
import { test } from "node:test";

import { lessonIn } from "../../../specdemo/ui/static/lessons.js";

test("an address names a lesson that there is, or the first", () => {
  const named = ["?lesson=3", "?lesson=0", "?lesson=7", "?lesson=2.5", "?lesson=<b>", ""].map((search) => lessonIn(search, 6));
  assert.deepEqual(named, [2, 0, 0, 0, 0, 0]);
});
