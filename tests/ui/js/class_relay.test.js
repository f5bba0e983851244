import assert from "node:assert/strict";
import { test } from "node:test";

import { Relay } from "../../../specdemo/ui/static/class_relay.js";
import { Trace } from "../../../specdemo/ui/static/trace.js";
import { START } from "./made.js";

/** As much of a stage as a relay looks at. */
function stageWith(trace = new Trace()) {
  return {
    trace,
    recording: null,
    topic: { current: {} },
    notice: { error: null },
    player: { time: 0, playing: false, rate: 1 },
    transport: { pace: "fit" },
    selection: { index: null, microscope: { open: false } },
  };
}

function told(stage) {
  const clock = { now: 0 };
  const relay = new Relay(stage, () => ({ tab: "run", lesson: null }), () => clock.now);
  const next = () => {
    const { messages, taken } = relay.news();
    taken();
    return messages;
  };
  return { relay, clock, next, types: () => next().map(({ type }) => type) };
}

test("a run is told from its beginning, then what has come since, and nothing twice", () => {
  const stage = stageWith();
  const { next, types } = told(stage);
  assert.deepEqual(types(), ["view"]); // nothing is shown yet
  assert.deepEqual(types(), []);
  stage.trace.take(START);
  const [begin, more, view] = next();
  assert.deepEqual(begin, { type: "begin", run: 1, recording: null, topic: {} });
  assert.deepEqual(more, { type: "events", run: 1, from: 0, events: [START] });
  assert.equal(view.type, "view");
  assert.deepEqual(types(), []);
  stage.trace.events.push({ type: "round" });
  assert.deepEqual(next()[0], { type: "events", run: 1, from: 1, events: [{ type: "round" }] });
});

test("what was not taken is told again", () => {
  const stage = stageWith();
  const { relay } = told(stage);
  stage.trace.take(START);
  const lost = relay.news().messages;
  assert.deepEqual(relay.news().messages, lost);
});

test("another run is told with its recording and topic", () => {
  const stage = stageWith();
  const { next } = told(stage);
  stage.trace.take(START);
  next();
  Object.assign(stage, { trace: new Trace(), recording: "five", topic: { current: { focus: "baseline" } } });
  assert.deepEqual(next()[0], { type: "begin", run: 2, recording: "five", topic: { focus: "baseline" } });
});

test("a failure is told once", () => {
  const stage = stageWith();
  const { next } = told(stage);
  next();
  stage.notice.error = "The prompt is empty.";
  const [begin, failure] = next();
  assert.equal(begin.type, "begin");
  assert.deepEqual(failure.events, [{ type: "error", message: "The prompt is empty." }]);
  assert.deepEqual(next(), []);
});

test("a clock that runs as expected is told every two seconds only, a jump or a pause at once", () => {
  const stage = stageWith();
  stage.trace.frontier = () => 100;
  const { clock, next, types } = told(stage);
  next();
  stage.player.playing = true;
  assert.deepEqual(types(), ["view"]);
  const pass = (seconds) => {
    clock.now += 1000 * seconds;
    stage.player.time += seconds;
  };
  pass(1);
  assert.deepEqual(types(), []);
  pass(1.1);
  assert.deepEqual(types(), ["view"]);
  stage.player.time += 5;
  assert.deepEqual(types(), ["view"]);
  pass(0.2);
  stage.player.playing = false;
  assert.deepEqual(types(), ["view"]);
  stage.player.time = 0.5;
  assert.equal(next()[0].time, 0.5);
});

test("the opened round is told, and that it was closed", () => {
  const stage = stageWith();
  const { next } = told(stage);
  next();
  stage.selection = { index: 3, microscope: { open: true } };
  assert.equal(next()[0].round, 3);
  stage.selection = { index: 3, microscope: { open: false } };
  assert.equal(next()[0].round, null);
});

test("a long run is told in parts, all of it", () => {
  const stage = stageWith();
  const { next } = told(stage);
  const events = Array.from({ length: 10 }, (_, number) => ({ type: "round", number, padding: "x".repeat(100_000) }));
  stage.trace.events.push(...events);
  const heard = [];
  for (let beat = 0; beat < 10; beat += 1) {
    for (const message of next()) {
      if (message.type !== "events") continue;
      assert.equal(message.from, heard.length);
      assert(JSON.stringify(message).length < 900_000);
      heard.push(...message.events);
    }
  }
  assert.deepEqual(heard, events);
});

test("a run that was refused is shown no more, the next is; what the class lacks is told anew", () => {
  const stage = stageWith();
  const { relay, next, types } = told(stage);
  stage.trace.take(START);
  next();
  relay.giveUp();
  assert.deepEqual(types(), ["begin", "view"]); // of nothing
  stage.trace = new Trace();
  stage.trace.take(START);
  assert.deepEqual(types(), ["begin", "events", "view"]);
  relay.tellAnew();
  assert.deepEqual(types(), ["begin", "events", "view"]);
});
