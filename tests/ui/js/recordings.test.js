import assert from "node:assert/strict";
import { test } from "node:test";

import { keepRun } from "../../../specdemo/ui/static/recordings.js";

/** A browser's storage with room for so many characters. */
function storage(t, room = Infinity) {
  const held = new Map();
  globalThis.localStorage = {
    getItem: (key) => held.get(key) ?? null,
    removeItem: (key) => held.delete(key),
    setItem: (key, value) => {
      if (value.length > room) throw new Error("QuotaExceededError");
      held.set(key, value);
    },
  };
  t.after(() => delete globalThis.localStorage);
  return () => [...held.values()];
}

test("the last run is kept in place of the one before", (t) => {
  const held = storage(t);
  keepRun([{ type: "start" }, { type: "end" }]);
  keepRun([{ type: "start", again: true }]);
  assert.deepEqual(held(), ['{"type":"start","again":true}']);
});

test("a run that is too long is not kept, nor is an older one then called the last", (t) => {
  const held = storage(t);
  keepRun([{ type: "start" }]);
  keepRun([{ text: "x".repeat(2_000_001) }]);
  assert.deepEqual(held(), []);
});

test("storage that is full or refused is no fault", (t) => {
  const held = storage(t, 5);
  keepRun([{ type: "start" }]);
  assert.deepEqual(held(), []);
  delete globalThis.localStorage;
  keepRun([{ type: "start" }]);
});
