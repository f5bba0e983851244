import assert from "node:assert/strict";
import { test } from "node:test";

import { lessonIn, Tasks } from "../../../specdemo/ui/static/learn/lessons.js";

test("an address names a lesson that there is, or the first", () => {
  const names = ["1", "2", "3", "quiz"];
  const asked = ["?lesson=3", "?lesson=quiz", "?lesson=0", "?lesson=7", "?lesson=2.5", "?lesson=<b>", ""];
  assert.deepEqual(asked.map((search) => lessonIn(search, names)), [2, 3, 0, 0, 0, 0, 0]);
});

const MOMENT = { recording: null, focus: undefined, ended: false, settled: 0, round: null, divergence: false };
const ANSWERED = [{ answered: true }, { answered: false }, { recording: "five", focus: "baseline", ended: true }, { recording: "editor", round: {} }];

/** The lesson's task -> a moment that does it, and moments that come near. */
const CASES = {
  1: ANSWERED,
  2: [{ recording: "five", focus: "speculative", settled: 1 }, { recording: "five", focus: "speculative" }, { recording: "five", focus: "baseline", settled: 3 }, { recording: "email", settled: 1 }],
  3: ANSWERED,
  4: ANSWERED,
  5: ANSWERED,
  6: [{ divergence: true }, { recording: "draft-alone", ended: true }],
  7: ANSWERED,
};

for (const [lesson, [done, ...near]] of Object.entries(CASES)) {
  test(`the task of lesson ${lesson} is done by what it asks for and by nothing near it`, () => {
    const tasks = new Tasks([]);
    for (const part of near) assert.equal(tasks.take(lesson, { ...MOMENT, ...part }), false);
    assert.equal(tasks.take(lesson, { ...MOMENT, ...done }), true);
    assert.deepEqual([...tasks.done], [lesson]);
    assert.equal(tasks.take(lesson, { ...MOMENT, ...done }), false, "it is done once");
  });
}

test("what was done at another visit stays done, and a page without a task has none", () => {
  const tasks = new Tasks(["6"]);
  assert.equal(tasks.take("6", { ...MOMENT, divergence: true }), false);
  assert.equal(tasks.take("quiz", { ...MOMENT, divergence: true }), false);
});
