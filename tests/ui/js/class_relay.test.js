import assert from "node:assert/strict";
import { test } from "node:test";

import { Relay } from "../../../specdemo/ui/static/class/class_relay.js";
import { Trace } from "../../../specdemo/ui/static/stage/trace.js";
import { START } from "./made.js";

/** The parts of a stage that a relay reads. */
function stageWith(trace = new Trace()) {
  return {
    trace,
    recording: null,
    topic: { current: {} },
    shown: { error: null },
    player: { time: 0, playing: false, rate: 1 },
    transport: { pace: "fit" },
    selection: { index: null, microscope: { open: false } },
  };
}

function relayOf(stage) {
  const clock = { now: 0 };
  const relay = new Relay(stage, () => ({ tab: "run", lesson: null }), () => clock.now);
  const next = () => {
    const { messages, taken } = relay.news();
    taken();
    return messages;
  };
  return { relay, clock, next, types: () => next().map(({ type }) => type) };
}

test("a run is sent from its beginning, then only what is new, and again if it was not taken", () => {
  const stage = stageWith();
  const { relay, next, types } = relayOf(stage);
  assert.deepEqual(types(), ["view"]); // no run yet
  assert.deepEqual(types(), []);
  stage.trace.take(START);
  const lost = relay.news().messages;
  const [begin, events, view] = next();
  assert.deepEqual([begin, events, view], lost);
  assert.deepEqual(begin, { type: "begin", run: 1, recording: null, topic: {} });
  assert.deepEqual(events, { type: "events", run: 1, from: 0, events: [START] });
  assert.deepEqual(types(), []);
  stage.shown.error = "The prompt is empty.";
  assert.deepEqual(next()[0].events, [{ type: "error", message: "The prompt is empty." }]);
  assert.deepEqual(next(), []);
});

test("a clock that runs as expected is sent every two seconds only, a jump or a pause at once", () => {
  const stage = stageWith();
  stage.trace.frontier = () => 100;
  const { clock, next, types } = relayOf(stage);
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
});

test("a long run is sent in parts, all of it", () => {
  const stage = stageWith();
  const { next } = relayOf(stage);
  const events = Array.from({ length: 10 }, (_, number) => ({ type: "round", number, padding: "x".repeat(100_000) }));
  stage.trace.events.push(...events);
  const received = [];
  for (let post = 0; post < 10; post += 1) {
    for (const message of next()) {
      if (message.type !== "events") continue;
      assert.equal(message.from, received.length);
      assert(JSON.stringify(message).length < 900_000);
      received.push(...message.events);
    }
  }
  assert.deepEqual(received, events);
});

test("after a refusal no run is sent until the next; a restart sends the current run from its beginning", () => {
  const stage = stageWith();
  const { relay, next, types } = relayOf(stage);
  stage.trace.take(START);
  next();
  relay.giveUp();
  assert.deepEqual(types(), ["begin", "view"]); // of no run
  Object.assign(stage, { trace: new Trace(), recording: "five", topic: { current: { focus: "baseline" } } });
  stage.trace.take(START);
  const [begin] = next();
  assert.deepEqual([begin.recording, begin.topic], ["five", { focus: "baseline" }]);
  relay.restart();
  assert.deepEqual(types(), ["begin", "events", "view"]);
});
