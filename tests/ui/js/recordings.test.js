import assert from "node:assert/strict";
import { test } from "node:test";

import { learnTables } from "../../../specdemo/ui/static/common/tables.js";
import { hasSettings, keepRun, nearest, sourceWords } from "../../../specdemo/ui/static/stage/recordings.js";

learnTables({ linked: ["prompt", "k", "drafter", "pair"] });

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

test("the recording most like a link's run has its prompt, else its drafter, else its rule", () => {
  const recordings = [
    { name: "first", prompt: "a", drafter: "draft-model", rule: "greedy" },
    { name: "lookup", prompt: "b", drafter: "combined", rule: "greedy" },
    { name: "sampled", prompt: "c", drafter: "draft-model", rule: "rejection" },
    { name: "block", prompt: "c", drafter: "draft-model", rule: "block" },
  ];
  const nameFor = (query) => nearest(recordings, new URLSearchParams(query)).name;
  assert.equal(nameFor("prompt=b&drafter=draft-model&rule=rejection"), "lookup");
  assert.equal(nameFor("prompt=c&drafter=draft-model&rule=block"), "block");
  assert.equal(nameFor("prompt=z&drafter=combined&rule=rejection"), "lookup");
  assert.equal(nameFor("prompt=z&drafter=draft-model&rule=rejection"), "sampled");
  assert.equal(nameFor("prompt=z&k=4"), "first");
  assert.equal(nearest([], new URLSearchParams("k=4")), undefined);
});

test("only parameters of a run are its settings", () => {
  const isAsked = (query) => hasSettings(new URLSearchParams(query));
  assert.ok(isAsked("__theme=dark&k=4") && isAsked("prompt=a"));
  assert.ok(!isAsked("") && !isAsked("__theme=dark&trace=code&question=two"));
});

test("only the visitor's own run is called the last run", () => {
  const run = { device: "AMD EPYC, 2 threads", watched: null };
  const words = (stage, made = run) => sourceWords({ isOwn: false, recording: null, trace: { start: { run: made } }, ...stage });
  assert.equal(words({ isOwn: true }), "your last run");
  assert.equal(words({ recording: "five" }), "a recorded run (AMD EPYC, 2 threads)");
  assert.equal(words({}), "an opened run (AMD EPYC, 2 threads)");
  assert.equal(words({}, { ...run, watched: { server: "lab" } }), "a run of the server lab");
});
