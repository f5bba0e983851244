import assert from "node:assert/strict";
import { test } from "node:test";

import { PlotPacer } from "../../../specdemo/ui/static/plots.js";
import { handClock } from "./hand_clock.js";

function handPacer(cost, again = true) {
  const clock = handClock();
  const list = new Set();
  const drawn = [];
  const draw = async (name) => {
    list.delete(name);
    drawn.push(name);
    clock.time += cost;
    return again;
  };
  return { clock, list, drawn, pacer: new PlotPacer({ due: () => [...list], draw, clock }) };
}

test("a rest is 250 ms at least and 12 times what the redrawing took", async () => {
  for (const [cost, rest] of [
    [10, 250],
    [50, 1200],
  ]) {
    const { clock, list, pacer } = handPacer(cost);
    list.add("a").add("b");
    pacer.wake();
    assert.equal(await clock.fire(), 0, "after idling, at once");
    list.add("a");
    pacer.wake();
    assert.equal(await clock.fire(), rest);
  }
});

test("a first drawing is not counted", async () => {
  const { clock, list, pacer } = handPacer(500, false);
  list.add("a");
  pacer.wake();
  await clock.fire();
  list.add("a");
  pacer.wake();
  assert.equal(await clock.fire(), 250);
});

test("nothing due, nothing planned; what changes meanwhile is drawn after the rest", async () => {
  const { clock, list, drawn, pacer } = handPacer(10);
  pacer.wake();
  assert.equal(clock.waiting, null);
  list.add("a");
  pacer.wake();
  const first = clock.waiting;
  pacer.wake();
  assert.equal(clock.waiting, first, "one plan at a time");
  const running = clock.fire();
  list.add("b");
  await running;
  await clock.fire();
  assert.deepEqual(drawn, ["a", "b"]);
  assert.equal(clock.waiting, null);
});

test("a drawing that fails does not stop the next", async () => {
  const { clock, list, pacer } = handPacer(10);
  pacer.draw = (name) => {
    list.delete(name);
    throw new Error("no");
  };
  list.add("a");
  pacer.wake();
  await assert.rejects(clock.fire());
  list.add("b");
  pacer.wake();
  assert.equal(clock.waiting.delay, 250);
});

test("nothing is drawn before its time, which may move on", async () => {
  const { clock, list, drawn, pacer } = handPacer(10);
  let quietAt = 1300;
  pacer.notBefore = (name) => (name === "live" ? quietAt : 0);
  list.add("live");
  pacer.wake();
  assert.equal(clock.waiting.delay, 300);
  quietAt = 1500;
  await clock.fire();
  assert.deepEqual([drawn, clock.waiting.delay], [[], 200], "it has changed meanwhile");
  await clock.fire();
  assert.deepEqual(drawn, ["live"]);
});

test("in a hurry only the least rest is kept, and the plan made before is dropped", async () => {
  const { clock, list, drawn, pacer } = handPacer(100);
  list.add("a");
  pacer.wake();
  await clock.fire();
  list.add("a");
  pacer.wake();
  const slow = clock.waiting;
  assert.equal(slow.delay, 1200);
  pacer.hurry();
  assert.notEqual(clock.waiting, slow);
  assert.equal(await clock.fire(), 250);
  assert.deepEqual(drawn, ["a", "a"]);
});
