import assert from "node:assert/strict";
import { test } from "node:test";

import { timeLeft } from "../../../specdemo/ui/static/words.js";

test("what is left is told as soon as it can be, coarsely where it is long", () => {
  assert.equal(timeLeft(0, 3), "");
  assert.equal(timeLeft(0.04, 3), "");
  assert.equal(timeLeft(0.25, 31), ", about 95 s left");
  assert.equal(timeLeft(0.5, 7.4), ", about 7 s left");
  assert.equal(timeLeft(0.99, 1), ", about 1 s left");
  assert.equal(timeLeft(1, 60), "");
});
