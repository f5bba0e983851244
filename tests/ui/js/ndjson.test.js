import assert from "node:assert/strict";
import { test } from "node:test";

import { GrowingLines } from "../../../specdemo/ui/static/common/ndjson.js";

const lines = (...numbers) => numbers.map((number) => `{"number":${number}}\n`).join("");
const read = (reader, value) => {
  const { anew, events } = reader.read(value);
  return [anew, events.map(({ number }) => number)];
};

test("while a value grows each of its events is read once", () => {
  const reader = new GrowingLines();
  assert.deepEqual(read(reader, lines(1)), [true, [1]]);
  assert.deepEqual(read(reader, lines(1, 2, 3)), [false, [2, 3]]);
  assert.deepEqual(read(reader, lines(1, 2, 3)), [false, []], "the same value again");
});

test("a value that does not go on from the one before is another job's", () => {
  const reader = new GrowingLines();
  reader.read(lines(1, 2));
  assert.deepEqual(read(reader, lines(1)), [true, [1]], "shorter");
  assert.deepEqual(read(reader, lines(7, 8, 9)), [true, [7, 8, 9]], "longer, with another beginning");
});

test("half a line waits for the other half", () => {
  const reader = new GrowingLines();
  assert.deepEqual(read(reader, `${lines(1)}{"num`), [true, [1]]);
  assert.deepEqual(read(reader, `${lines(1)}{"number":2}`), [false, []], "it may yet go on");
  assert.deepEqual(read(reader, lines(1, 2, 3)), [false, [2, 3]]);
});

test("an empty value has no events, and whatever follows it begins anew", () => {
  const reader = new GrowingLines();
  assert.deepEqual(read(reader, ""), [false, []], "nothing was there before");
  reader.read(lines(1));
  assert.deepEqual(read(reader, ""), [true, []]);
  assert.deepEqual(read(reader, lines(1)), [true, [1]]);
});

test("whoever knows that a job begins is told all of it, however alike it is to the one before", () => {
  const reader = new GrowingLines();
  reader.read(lines(1));
  reader.renew();
  assert.deepEqual(read(reader, lines(1)), [false, []], "still the one before");
  assert.deepEqual(read(reader, lines(1, 2)), [true, [1, 2]]);
  assert.deepEqual(read(reader, lines(1, 2, 3)), [false, [3]]);
});
