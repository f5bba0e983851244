import assert from "node:assert/strict";
import { test } from "node:test";

import { PlotContents, raceAxes, ticksOf } from "../../../specdemo/ui/static/stage/plot_contents.js";
import { Trace } from "../../../specdemo/ui/static/stage/trace.js";
import { round, roundEvent, smallTrace, START, TOTALS } from "./made.js";

const ROOM = { width: 530, height: 95, em: 15 };

function traceOf(count, { ended = false, totals = {} } = {}) {
  const trace = new Trace();
  trace.take(START);
  for (let i = 0; i < count; i += 1) trace.take(roundEvent("speculative", round(i, []), totals));
  if (ended) trace.closed = true;
  return trace;
}

const lengths = (trace) => ["x", "y"].map((axis) => raceAxes(trace, ROOM)[axis].range[1]);

test("before a run there are axes for a second and some tokens", () => {
  const { x, y } = raceAxes(null, ROOM);
  assert.deepEqual([x.range, y.range], [[0, 1], [0, 20]]);
  assert.ok(ticksOf(x).length > 2 && ticksOf(y).length > 2);
});

test("axes grow in steps while a run goes on and end where its lanes do", () => {
  const at = (seconds, tokens, ended = false) =>
    lengths(traceOf(1, { ended, totals: { seconds, tokens } })).map((length) => Number(length.toFixed(3)));
  assert.deepEqual([at(0.09, 1), at(0.31, 16), at(0.5, 21), at(1, 100), at(7.2, 101)], [[0.1, 20], [0.4, 20], [0.6, 30], [1, 100], [8, 150]]);
  assert.deepEqual(at(10, 100, true), [10.4, 104]);
});

test("labels stand on round numbers, as many as there is room for", () => {
  assert.deepEqual(ticksOf({ range: [0.5, 12.5], dtick: 5 }), [5, 10]);
  assert.deepEqual(ticksOf({ range: [0, 1.5], dtick: 0.5 }), [0, 0.5, 1, 1.5]);
  for (const seconds of [0.4, 1, 3.4, 73, 420, 1000]) {
    const { x, y } = raceAxes(traceOf(1, { ended: true, totals: { seconds, tokens: 10 * seconds } }), ROOM);
    for (const { length } of [ticksOf(x), ticksOf(y)]) assert.ok(length >= 2 && length <= 12, `${seconds}: ${length}`);
  }
});

// The uids of each chart's traces; tests/charts/test_stage_charts.py names the same.
const FILLED = {
  rates: ["alpha", "tau"],
  speedup: ["speedup", "theory", "speedup-lead"],
  race: ["speculative", "speculative-lead", "baseline", "baseline-lead", "draft", "draft-lead"],
  time: ["drafting", "verifying", "rest"],
  position: ["position"],
  ranks: ["ranks"],
  entropy: ["entropy"],
};

function skeleton(name) {
  return {
    data: [...FILLED[name].map((uid) => ({ uid, x: [null], y: [null] })), ...(name === "race" ? [] : [{ uid: "room", x: [0.5], y: ["first"] }])],
    layout: {
      title: { text: name, pad: { t: 10 }, font: { size: 16 } },
      font: { size: 15 },
      margin: { l: 56, r: 14, t: 72, b: 44 },
      xaxis: { title: { text: "round" } },
      yaxis: { title: { text: "tokens" } },
      shapes: [{ name: "selected", visible: false }, { name: "other" }],
      annotations: name === "speedup" ? [{ name: "no-baseline", visible: false, text: "no baseline" }] : [],
    },
    narrow: { margin: { t: 44 } },
    dense: { [FILLED[name][0]]: { dense: true } },
  };
}

/** Contents of charts of 600 × 330 px; `shown(name)` is a figure with its traces by uid. */
function contentsOf(t, { coarse = false } = {}) {
  globalThis.matchMedia = () => ({ matches: coarse });
  t.after(() => delete globalThis.matchMedia);
  const figures = { light: Object.fromEntries(Object.keys(FILLED).map((name) => [name, skeleton(name)])) };
  const contents = new PlotContents(figures);
  for (const name of Object.keys(FILLED)) contents.fit(name, "light", { width: 600, height: 330 });
  const shown = (name) => {
    const { data, layout } = contents.figure(name);
    return { ...Object.fromEntries(data.map((trace) => [trace.uid, trace])), layout };
  };
  const play = (trace, time) => new Set(contents.take(trace.stateAt(time), trace.totalsAt(time)));
  return { contents, figures, shown, play };
}

function playable() {
  const trace = smallTrace();
  for (const entry of trace.arrived) entry.totals = { ...TOTALS, ...entry.totals };
  return trace;
}

test("charts change with the rounds played, forwards and back", (t) => {
  const { contents, figures, shown, play } = contentsOf(t);
  const trace = playable();
  contents.begin(trace);
  assert.deepEqual(play(trace, 1), new Set(), "nothing has ended");
  assert.deepEqual(play(trace, 1.2), new Set(["race", "time"]), "a baseline step");
  assert.deepEqual(play(trace, 99), new Set(Object.keys(FILLED)));
  assert.deepEqual(shown("speedup").speedup.x, [1, 2]);
  play(trace, 2.1);
  assert.deepEqual(shown("speedup").speedup.x, [1]);
  assert.deepEqual(shown("race").draft.x, [null]);
  assert.deepEqual(shown("rates").room, { uid: "room", x: [0.5, 2.5], y: ["first", "first"] });
  assert.deepEqual(figures.light.rates.data[2].x, [0.5], "the skeleton stays as it was");
});

test("a new run resets the zoom, rounds of the same run keep it", (t) => {
  const { contents, shown, play } = contentsOf(t);
  const trace = playable();
  contents.begin(trace);
  const { uirevision } = shown("speedup").layout;
  play(trace, 99);
  assert.equal(shown("speedup").layout.uirevision, uirevision);
  contents.begin(trace);
  assert.notEqual(shown("speedup").layout.uirevision, uirevision);
});

test("the selected round is marked once it has been played", (t) => {
  const { contents, shown, play } = contentsOf(t);
  const trace = playable();
  contents.begin(trace);
  play(trace, 2.1);
  assert.deepEqual(contents.select(1), ["rates", "speedup"]);
  assert.deepEqual(contents.select(1), []);
  assert.equal(shown("rates").layout.shapes[0].visible, false);
  play(trace, 99);
  assert.deepEqual(shown("rates").layout.shapes, [{ name: "selected", visible: true, x0: 1.5, x1: 2.5 }, { name: "other" }]);
});

test("too many bars for the width take the dense look", (t) => {
  const { contents, shown } = contentsOf(t);
  const isDense = (count) => {
    contents.begin(traceOf(1, { totals: { ...TOTALS, compared_by_position: Array(count).fill(1) } }));
    return Boolean(shown("position").position.dense);
  };
  assert.deepEqual([6, 7].map(isDense), [false, true]);
});

test("a run without a baseline says so and hides its line", (t) => {
  const { contents, shown, play } = contentsOf(t);
  const trace = new Trace();
  trace.take({ ...START, run: { ...START.run, config: { ...START.run.config, baseline: false } } });
  trace.take(roundEvent("speculative", round(0, ["accepted"]), TOTALS));
  contents.begin(trace);
  play(trace, 99);
  assert.equal(shown("speedup").layout.annotations[0].visible, true);
  assert.equal(shown("race").baseline.visible, false);
  assert.equal(shown("time").rest.text[1], "not run");
  contents.begin(playable());
  assert.equal(shown("speedup").layout.annotations[0].visible, false);
});

test("a narrow chart takes the narrow layout, a large one larger fonts, and a finger does not drag", (t) => {
  const { contents } = contentsOf(t, { coarse: true });
  const looks = (width, height) => {
    const { font, margin, dragmode } = contents.fit("time", "light", { width, height });
    return [font.size, margin.t, dragmode];
  };
  assert.deepEqual(looks(400, 330), [15, 44, false]);
  assert.deepEqual(looks(800, 660), [24, 115, false]);
});
