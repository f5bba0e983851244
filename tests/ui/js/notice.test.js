import assert from "node:assert/strict";
import { test } from "node:test";

import { Speaker } from "../../../specdemo/ui/static/stage/notice.js";

/** A live region that records its texts, and timers moved by hand. */
function listener(t) {
  const said = [];
  const node = { set textContent(words) { said.push(words); }, get textContent() { return said.at(-1) ?? ""; } };
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  return { said, pass: (ms) => t.mock.timers.tick(ms), speaker: new Speaker(node) };
}

test("of many sentences at once the first is said, and the latest two seconds later", (t) => {
  const { said, pass, speaker } = listener(t);
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

test("what ends a run is said at once, and nothing that waited comes after it", (t) => {
  const { said, pass, speaker } = listener(t);
  speaker.say("round 1");
  speaker.say("round 2");
  speaker.sayNow("done");
  pass(10_000);
  assert.deepEqual(said, ["round 1", "done"]);
  speaker.sayNow("done");
  assert.deepEqual(said, ["round 1", "done"], "not again");
});

test("another run begins in silence", (t) => {
  const { said, pass, speaker } = listener(t);
  speaker.say("round 1");
  speaker.say("round 2");
  speaker.silence();
  pass(10_000);
  assert.deepEqual(said, ["round 1", ""]);
});
