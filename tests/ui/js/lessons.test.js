import assert from "node:assert/strict";
import { test } from "node:test";

import { lessonIn } from "../../../specdemo/ui/static/lessons.js";

test("an address names a lesson that there is, or the first", () => {
  const names = ["1", "2", "3", "quiz"];
  const asked = ["?lesson=3", "?lesson=quiz", "?lesson=0", "?lesson=7", "?lesson=2.5", "?lesson=<b>", ""];
  assert.deepEqual(asked.map((search) => lessonIn(search, names)), [2, 3, 0, 0, 0, 0, 0]);
});
