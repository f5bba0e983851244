import assert from "node:assert/strict";
import { test } from "node:test";

import { commandOf, FIT_S, Player, setModelsRun, slowedAt, slowPhases } from "../../../specdemo/ui/static/stage/player.js";
import { Trace } from "../../../specdemo/ui/static/stage/trace.js";
import { round, roundEvent, smallTrace, START } from "./made.js";

/** A clock whose animation frames are run by hand. */
class Frames {
  constructor() {
    this.time = 0;
    this.waiting = null;
  }
  now() {
    return this.time;
  }
  request(callback) {
    this.waiting = callback;
    return 1;
  }
  after(delay, callback) {
    this.delay = delay;
    return this.request(callback);
  }
  cancel() {
    this.waiting = null;
  }
  /** Let `milliseconds` pass, then run what waits. */
  pass(milliseconds) {
    this.time += milliseconds;
    const callback = this.waiting;
    this.waiting = null;
    callback?.();
  }
}

function playing(trace, pace = 1) {
  const frames = new Frames();
  const times = [];
  const player = new Player({ trace, pace, onTime: (time) => times.push(time), onState: () => {}, frames });
  return { player, frames, times };
}

const closed = () => {
  const trace = smallTrace();
  trace.closed = true;
  return trace;
};
const near = (left, right) => assert.ok(Math.abs(left - right) < 1e-9, `${left} is not ${right}`);

test("time passes at the pace", () => {
  const { player, frames } = playing(closed(), 0.25);
  player.play();
  frames.pass(80);
  near(player.time, 0.02);
  frames.pass(40);
  near(player.time, 0.03);
});

test("the pace that fits shows a short run slowly, a slow one as it was, and changes only when all is known", () => {
  const slowness = (made) => playing(made, "fit").player.slowness;
  const short = closed();
  assert.equal(slowness(short), Math.round(FIT_S / short.frontier()));
  assert.equal(slowness(new Trace()), 4, "nothing tells how long it will be");
  const live = new Trace();
  const run = { config: { max_new_tokens: 60 }, calibration: { step_s: 0.05 } };
  live.start = { run };
  const { player } = playing(live, "fit");
  near(player.rate, 3 / FIT_S);
  run.calibration.step_s = 1;
  near(player.rate, 3 / FIT_S);
  near(playing(live, "fit").player.rate, 1);
  const whole = closed();
  whole.closed = false;
  whole.start = { run: { ...run, calibration: { step_s: 0.001 } } };
  const { player: watched } = playing(whole, "fit");
  assert.ok(watched.slowness > 100);
  whole.closed = true;
  assert.equal(watched.slowness, Math.round(FIT_S / whole.frontier()), "it was slower than measured before");
});

test("a tab that was hidden goes on where it was", () => {
  const { player, frames } = playing(closed());
  player.play();
  frames.pass(60_000);
  near(player.time, 0.1);
});

test("ten tokens a second follows the measured speed", () => {
  const trace = closed();
  trace.arrived.at(-1).totals.tokens_per_s = 40;
  assert.equal(playing(trace, "tokens").player.rate, 0.25);
});

test("it pauses at the end and plays again from the start", () => {
  const { player, frames } = playing(closed(), 100);
  player.play();
  for (let frame = 0; frame < 20 && player.playing; frame += 1) frames.pass(90);
  assert.ok(player.atEnd && !player.playing);
  player.play();
  assert.ok(player.playing);
  near(player.time, 0);
});

test("it waits for rounds that have not come and goes on when they do", () => {
  const trace = new Trace();
  trace.take(START);
  const { player, frames } = playing(trace, 100);
  player.play();
  frames.pass(50);
  frames.pass(50);
  assert.ok(player.stalled);
  trace.take(roundEvent("speculative", round(0, ["accepted"])));
  trace.take(roundEvent("baseline", round(0, [])));
  player.wake();
  frames.pass(50);
  frames.pass(50);
  near(player.time, 1.1);
});

test("it draws less often while the models run on the processor that draws", (context) => {
  context.after(() => setModelsRun(false));
  const delay = (hostname, running) => {
    globalThis.location = { hostname };
    setModelsRun(running);
    const trace = new Trace();
    trace.take(START);
    trace.take(roundEvent("speculative", round(0, ["accepted"])));
    trace.take(roundEvent("baseline", round(0, [])));
    const { player, frames } = playing(trace);
    player.play();
    return frames.delay;
  };
  const usual = delay("localhost", false);
  for (const here of ["localhost", "127.0.0.1", "[::1]"]) assert.ok(delay(here, true) >= 2 * usual, here);
  for (const elsewhere of ["demo.example", "127.example"]) assert.equal(delay(elsewhere, true), usual);
});

test("steps go to the neighbouring stop and hold the clock", () => {
  const trace = closed();
  const { player } = playing(trace);
  player.play();
  player.step(trace.phaseStops(), 1);
  near(player.time, 1);
  assert.ok(!player.playing);
  player.step(trace.phaseStops(), 1);
  near(player.time, 2);
  player.step(trace.roundStops(), 1);
  near(player.time, 2.1);
  player.step(trace.phaseStops(), -1);
  near(player.time, 2);
  player.step(trace.roundStops(), -1);
  near(player.time, 0);
});

test("seeking stays within what has come", () => {
  const { player } = playing(closed());
  player.seek(1e9);
  near(player.time, 4.4);
  player.seek(-3);
  near(player.time, 0);
});

const PLAIN = { shiftKey: false, ctrlKey: false, altKey: false, metaKey: false };

/** A place on the page that only knows whether it is, or lies in, an element of this tag name or selector. */
function within(...kinds) {
  const lists = (places) => places.split(/,\s*(?![^(]*\))/);
  return { closest: (places) => (lists(places).some((place) => kinds.includes(place)) ? {} : null) };
}

const press = (key, target = within(), more = {}) => commandOf({ ...PLAIN, key, target, ...more });

test("keys play, step by phase and by round, and go to the ends", () => {
  assert.equal(press(" "), "play");
  assert.equal(press("ArrowLeft"), "phase-back");
  assert.equal(press("ArrowRight"), "phase-on");
  assert.equal(press("ArrowLeft", within(), { shiftKey: true }), "round-back");
  assert.equal(press("ArrowRight", within(), { shiftKey: true }), "round-on");
  assert.equal(press("Home"), "to-start");
  assert.equal(press("End"), "to-end");
  assert.equal(press("?", within(), { shiftKey: true }), "help");
  assert.equal(press("x"), undefined);
  assert.equal(press("Home", within(), { shiftKey: true }), undefined);
});

test("a modifier is somebody else's", () => {
  for (const modifier of ["ctrlKey", "altKey", "metaKey"]) {
    for (const key of [" ", "ArrowLeft", "?"]) assert.equal(press(key, within(), { [modifier]: true }), undefined);
  }
});

test("nothing happens while one types", () => {
  for (const field of ["textarea", "select", "dialog"]) {
    for (const key of [" ", "ArrowLeft", "Home", "?"]) assert.equal(press(key, within(field)), undefined, field);
  }
});

test("a key that has work where the focus is keeps it, others do theirs", () => {
  assert.equal(press(" ", within("button")), undefined);
  assert.equal(press("ArrowRight", within("button")), "phase-on");
  assert.equal(press("?", within("button")), "help");
  assert.equal(press("ArrowRight", within("[role=slider]")), undefined);
  assert.equal(press(" ", within("[role=slider]")), "play");
  assert.equal(press("ArrowRight", within(".sd-text")), undefined);
});

test("the first round takes 5 s and the second 3 s, in phases without a gap", () => {
  const entry = (index, from) => ({ round: { index, drafted: [{}, {}, {}, {}] }, from, draftEnd: from + 4, to: from + 7 });
  const entries = [entry(0, 1), entry(1, 8), entry(2, 15)];
  const phases = slowPhases(entries);
  assert.deepEqual(phases.map(({ phase }) => phase), ["prompt", "draft", "verify", "verdict", "draft", "verify", "verdict"]);
  assert.deepEqual(phases.map(({ from }) => from), [0, 1, 5, 8, 9, 12, 15]);
  assert.deepEqual(phases.map(({ to }) => to), [1, 5, 8, 9, 12, 15, 16]);
  const seconds = (from, to) => phases.slice(from, to).reduce((sum, phase) => sum + phase.seconds, 0);
  near(seconds(0, 4), 5);
  near(seconds(4), 3);
  assert.equal(slowedAt(entries, 4.5).to, 5);
  assert.equal(slowedAt(entries, 16), null);
  assert.deepEqual(slowPhases([]), []);
});
