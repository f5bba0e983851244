import assert from "node:assert/strict";
import { test } from "node:test";

import { liveAxes, MAX_BARS, ticksOf } from "../../../specdemo/ui/static/plot_contents.js";
import { Trace } from "../../../specdemo/ui/static/trace.js";
import { round, roundEvent, START } from "./made.js";

const ROOM = { width: 530, height: 95, em: 15 };

function traceOf(count, { ended = false, totals = {}, drafts = [] } = {}) {
  const trace = new Trace();
  trace.take(START);
  for (let i = 0; i < count; i += 1) trace.take(roundEvent("speculative", round(i, drafts), totals));
  if (ended) trace.closed = true;
  return trace;
}

const reach = (trace) => liveAxes("acceptance", trace, ROOM).x.range[1];

test("before a run there are axes for twelve rounds", () => {
  for (const name of ["acceptance", "speedup"]) {
    const { x, y, bins } = liveAxes(name, null, ROOM);
    assert.deepEqual(x, { range: [0.5, 12.5], dtick: 2, title: "round" });
    assert.deepEqual(bins, { bin: 1, last: 12, marked: true });
    assert.ok(y.range[0] === 0 && ticksOf({ ...y }).length > 2);
  }
});

test("axes grow in steps while a run goes on and end where its rounds do", () => {
  const grown = [0, 1, 12, 13, 24, 25, 50, 51, 100, 101, 420].map((count) => reach(traceOf(count)) - 0.5);
  assert.deepEqual(grown, [12, 12, 12, 24, 24, 50, 50, 100, 100, 150, 450]);
  for (const count of [1, 7, 34, 73, 420]) assert.equal(reach(traceOf(count, { ended: true })), count + 0.5);
  assert.equal(reach(traceOf(0, { ended: true })), 12.5, "ended before its first round");
});

test("beyond fifty rounds so many share a bar that fifty bars hold them, and the axis says so", () => {
  const bins = (count, name = "acceptance") => liveAxes(name, traceOf(count, { ended: true }), ROOM).bins.bin;
  assert.deepEqual([50, 51, 100, 101, 420].map((count) => bins(count)), [1, 2, 2, 3, 9]);
  for (const count of [51, 73, 420]) {
    assert.ok(Math.ceil(count / bins(count)) <= MAX_BARS);
    assert.equal(bins(count), liveAxes("acceptance", traceOf(count), ROOM).bins.bin, "as while it went on");
  }
  const { x } = liveAxes("acceptance", traceOf(73, { ended: true }), ROOM);
  assert.equal(x.title, "round (each bar is the mean of 2)");
  assert.equal(bins(73, "speedup"), 1);
});

test("there is room above the longest draft, for marks where they fit", () => {
  const top = (drafts, room = ROOM, ended = true) => liveAxes("acceptance", traceOf(30, { ended, drafts }), room).y.range[1];
  const five = ["accepted", "accepted", "accepted", "accepted", "rejected"];
  assert.equal(top(five), 5.9);
  assert.equal(top(five, ROOM, false), 6.9, "in steps of two");
  assert.equal(top(five, { ...ROOM, width: 260 }), 5, "marks would hide each other");
});

test("the speedup's axis holds every figure and begins at zero", () => {
  const top = (speedup, s_theory = null) => liveAxes("speedup", traceOf(3, { totals: { speedup, s_theory } }), ROOM).y.range[1];
  assert.deepEqual([top(null), top(0.4), top(1.45), top(1.3, 2.2), top(7.1)], [1.5, 1.5, 2, 2.5, 7.5]);
});

test("labels stand on round numbers, as many as there is room for", () => {
  assert.deepEqual(ticksOf({ range: [0.5, 12.5], dtick: 5 }), [5, 10]);
  assert.deepEqual(ticksOf({ range: [0, 1.5], dtick: 0.5 }), [0, 0.5, 1, 1.5]);
  for (const count of [1, 12, 34, 73, 420, 1000]) {
    const { x } = liveAxes("speedup", traceOf(count, { ended: true }), ROOM);
    const { length } = ticksOf(x);
    assert.ok(length >= 1 && length <= 12, `${count}: ${length}`);
  }
});
