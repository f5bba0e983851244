import assert from "node:assert/strict";
import { test } from "node:test";

import { Speaker } from "../../../specdemo/ui/static/notice.js";

/** A live region that notes what it was given, and a clock moved by hand. */
function listener() {
  const said = [];
  const node = { set textContent(words) { said.push(words); }, get textContent() { return said.at(-1) ?? ""; } };
  const waits = new Map();
  const clock = {
    time: 0,
    now: () => clock.time,
    after: (delay, callback) => waits.set(callback, clock.time + delay) && callback,
    cancel: (callback) => waits.delete(callback),
  };
  const pass = (ms) => {
    clock.time += ms;
    for (const [callback, at] of [...waits]) if (at <= clock.time && waits.delete(callback)) callback();
  };
  return { said, pass, speaker: new Speaker(node, clock) };
}

test("of many sentences at once the first is said, and the latest two seconds later", () => {
  const { said, pass, speaker } = listener();
  for (const words of ["one", "two", "three"]) speaker.say(words);
  assert.deepEqual(said, ["one"]);
  pass(1900);
  speaker.say("four");
  assert.deepEqual(said, ["one"]);
  pass(100);
  assert.deepEqual(said, ["one", "four"]);
  pass(5000);
  speaker.say("five");
  assert.deepEqual(said, ["one", "four", "five"]);
});

test("what ends a run is said at once, and nothing that waited comes after it", () => {
  const { said, pass, speaker } = listener();
  speaker.say("round 1");
  speaker.say("round 2");
  speaker.sayNow("done");
  pass(10_000);
  assert.deepEqual(said, ["round 1", "done"]);
  speaker.sayNow("done");
  assert.deepEqual(said, ["round 1", "done"], "not again");
});

test("another run begins in silence", () => {
  const { said, pass, speaker } = listener();
  speaker.say("round 1");
  speaker.say("round 2");
  speaker.silence();
  pass(10_000);
  assert.deepEqual(said, ["round 1", ""]);
});
