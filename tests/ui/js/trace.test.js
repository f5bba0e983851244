import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { parseEvents } from "../../../specdemo/ui/static/common/ndjson.js";
import { Trace } from "../../../specdemo/ui/static/stage/trace.js";
import { round, roundEvent, smallTrace, START } from "./made.js";

const near = (left, right) => assert.ok(Math.abs(left - right) < 1e-9, `${left} is not ${right}`);

test("a lane's state goes from proposed over verifying to settled", () => {
  const trace = smallTrace();
  const at = (time) => trace.stateAt(time).speculative;
  assert.deepEqual(at(0), { settled: 0, proposed: 0, verifying: false, ended: false });
  assert.deepEqual(at(0.5), { settled: 0, proposed: 1, verifying: false, ended: false });
  assert.deepEqual(at(1), { settled: 0, proposed: 2, verifying: false, ended: false });
  assert.deepEqual(at(1.5), { settled: 0, proposed: 2, verifying: true, ended: false });
  assert.deepEqual(at(2.1), { settled: 1, proposed: 0, verifying: false, ended: false });
  assert.deepEqual(at(99), { settled: 2, proposed: 0, verifying: false, ended: true });
});

test("both lanes are on one clock", () => {
  const { speculative, baseline } = smallTrace().stateAt(2.2);
  assert.equal(speculative.settled, 1);
  assert.equal(baseline.settled, 2);
});

test("prompt processing is on the clock before the first round", () => {
  const trace = new Trace();
  trace.take(START);
  trace.take(roundEvent("speculative", round(0, ["accepted"], 1, { prefill_s: 5 })));
  assert.equal(trace.stateAt(4.9).speculative.proposed, 0);
  assert.equal(trace.stateAt(6).speculative.proposed, 1);
  near(trace.entries("speculative")[0].to, 7.1);
});

test("a lane's figures are those sent with its latest round that has ended", () => {
  const trace = smallTrace();
  assert.equal(trace.totalsAt(1), null);
  assert.equal(trace.totalsAt(1.1), null, "no verdict yet");
  assert.equal(trace.totalsAt(2.15).of, "speculative 0");
  assert.equal(trace.totalsAt(2.15).baseline_tokens, "baseline 0");
  assert.equal(trace.totalsAt(2.2).baseline_tokens, "baseline 1");
  assert.equal(trace.totalsAt(99).of, "speculative 1");
  trace.take({ type: "end", totals: { of: "end" } });
  assert.equal(trace.totalsAt(99).of, "end");
  assert.equal(trace.totalsAt(4.25).of, "speculative 1");
  assert.equal(trace.totalsAt(4.3), trace.totalsAt(4.31), "the same moment, the same object");
});

test("no figure knows of a round that is still under way", () => {
  const trace = smallTrace();
  assert.equal(trace.totalsAt(2.15).speedup, "baseline 0", "baseline 1 has arrived before it, but not ended");
  assert.equal(trace.totalsAt(2.2).speedup, "baseline 1");
  assert.equal(trace.totalsAt(3.5).baseline_tokens, "baseline 2", "sent when speculative 1 had been folded in");
  assert.equal(trace.totalsAt(3.5).of, "speculative 0");
  assert.equal(trace.totalsAt(3.5).speedup, "baseline 1");
  assert.equal(trace.totalsAt(4.2).speedup, "baseline 2");
});

test("a comparison waits for every round that arrived before it", () => {
  const trace = new Trace();
  trace.take(START);
  for (const index of [0, 1]) trace.take(roundEvent("speculative", round(index, ["accepted"])));
  for (const index of [0, 1]) trace.take(roundEvent("baseline", round(index, [])));
  assert.equal(trace.totalsAt(2.5).baseline_tokens, "baseline 1");
  assert.equal(trace.totalsAt(2.5).speedup, "speculative 0", "speculative 1 has not ended");
});

test("while a lane still runs the others are known only as far as it is", () => {
  const trace = new Trace();
  trace.take(START);
  assert.equal(trace.frontier(), 0);
  trace.take(roundEvent("speculative", round(0, ["accepted"], 1, { finish: "eos" })));
  assert.equal(trace.frontier(), 0);
  trace.take(roundEvent("baseline", round(0, [])));
  near(trace.frontier(), 1.1);
  trace.closed = true;
  near(trace.frontier(), 2.1);
});

test("a moment is a round's draft, verification or verdict, which stays until the next round has a draft token", () => {
  const trace = smallTrace();
  const momentAt = (time, lane) => {
    const { entry, phase, proposed } = trace.momentAt(time, lane);
    return [entry.round.index, phase, proposed];
  };
  assert.deepEqual([0.2, 0.9, 1.5, 2.15, 2.7, 3.5, 99].map((time) => momentAt(time).slice(0, 2)), [
    [0, "draft"], [0, "draft"], [0, "verify"], [0, "verdict"], [1, "draft"], [1, "verify"], [1, "verdict"],
  ]);
  assert.deepEqual([0.2, 0.6].map((time) => momentAt(time)[2]), [0, 1]);
  assert.deepEqual([0.2, 1.2, 99].map((time) => momentAt(time, "baseline")), [[0, "verify", 0], [1, "verify", 0], [3, "verdict", 0]]);
  assert.equal(new Trace().momentAt(0), null);
});

test("a step stops at draft, verification and verdict of every round", () => {
  const stops = smallTrace().phaseStops();
  [1, 2, 2.1, 3.1, 4.1, 4.2].forEach((stop, index) => near(stops[index], stop));
  assert.equal(smallTrace().roundStops().length, 2);
});

test("a real recording ends where its rounds end, with its own totals", () => {
  const text = readFileSync(new URL("../data/greedy.ndjson", import.meta.url), "utf8");
  const trace = new Trace();
  for (const event of parseEvents(text)) trace.take(event);
  const seconds = trace.entries("speculative").reduce((sum, { round: one }) => sum + one.draft_s + one.verify_s + one.other_s + one.prefill_s, 0);
  near(trace.lanes.get("speculative").clock, seconds);
  assert.equal(trace.totalsAt(trace.frontier()), trace.end.totals);
  assert.equal(trace.totalsAt(trace.frontier()).passes, trace.entries("speculative").length);
});

test("the file of a run has its rounds, the pieces of all events, and only its own control tokens", () => {
  const trace = smallTrace();
  trace.take({ type: "end", totals: { of: "end" } });
  const file = trace.file();
  assert.equal(file.version, 1);
  assert.equal(file.lanes.speculative.rounds.length, 2);
  assert.equal(file.lanes.baseline.rounds[3].finish, "length");
  assert.deepEqual(file.pieces, { 1: "YQ==" });
  assert.deepEqual(file.specials, [1]);
  assert.deepEqual(file.totals, { of: "end" });
});

test("a lane without drafts has a stop for each of its passes", () => {
  const trace = smallTrace();
  for (const stops of [trace.roundStops("baseline"), trace.phaseStops("baseline")]) {
    assert.deepEqual(stops, trace.entries("baseline").map(({ to }) => to));
  }
});
