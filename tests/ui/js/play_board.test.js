import assert from "node:assert/strict";
import { test } from "node:test";

import { isEmpty, joined, wantsSpace } from "../../../specdemo/ui/static/play/play_board.js";

test("a space is added where a word begins", () => {
  assert.equal(joined("The capital of France is", "Paris", true), " Paris");
  assert.equal(joined("The light", "house", false), "house");
});

test("no second space is added, nor one before a mark that attaches to the last word", () => {
  for (const draft of [" Paris", "\nParis", ", Paris", ".", "’s", ")", "%", "?"]) assert.ok(!wantsSpace("is", draft), draft);
  for (const text of ["one ", "one\n", "(", "“", "and/"]) assert.ok(!wantsSpace(text, "two"), text);
  for (const draft of ["Paris", "(or", "“so", "12", "été", "日本", ""]) assert.ok(wantsSpace("is", draft), draft);
});

test("a draft of spaces is empty, one of a line break is not", () => {
  assert.ok(isEmpty("") && isEmpty("   "));
  assert.ok(!isEmpty("\n") && !isEmpty(" x"));
});
