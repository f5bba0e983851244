import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { EXAMPLE, EXAMPLE_U, overlapRows, partsOf } from "../../../specdemo/ui/static/stage/overlap.js";

const TOKEN = { id: 1, q: 0.5, p: 0.25, draft_top: [[1, 0.5], [2, 0.25]], target_top: [[3, 0.5], [1, 0.25]] };

test("tokens of either list have a row, the highest first; a probability in one list only has a bound in the other", () => {
  const unknown = { mostQ: 0.25, mostP: 0.25 };
  assert.deepEqual(overlapRows(TOKEN, false), [
    { id: 1, q: 0.5, p: 0.25, isDrafted: true, ...unknown },
    { id: 3, q: undefined, p: 0.5, isDrafted: false, ...unknown },
    { id: 2, q: 0.25, p: undefined, isDrafted: false, ...unknown },
  ]);
});

test("a copied draft is certain of its token, so no other token has a probability under it", () => {
  const rows = overlapRows({ ...TOKEN, draft_top: [] }, true);
  assert.deepEqual(rows.map(({ id, q, mostQ }) => [id, q, mostQ]), [[1, 1, 0], [3, undefined, 0]]);
});

test("the draft token has a row even if it is in neither list", () => {
  const many = [9, 8, 7, 6, 5, 4].map((id) => [id, 0.1]);
  assert.ok(overlapRows({ ...TOKEN, p: 0.01, q: 0.01, draft_top: many, target_top: many }, false).some(({ isDrafted }) => isDrafted));
});

const CASES = [
  ["a draft above the target", { q: 0.5, p: 0.3 }, [["common", 0, 0.3], ["draft", 0.3, 0.5], ["q", 0, 0.5], ["p", 0, 0.3]]],
  ["a target above the draft", { q: 0.2, p: 0.3 }, [["common", 0, 0.2], ["target", 0.2, 0.3], ["q", 0, 0.2], ["p", 0, 0.3]]],
  ["no draft at all", { q: undefined, mostQ: 0, p: 0.3 }, [["target", 0, 0.3], ["p", 0, 0.3]]],
  ["an unknown p", { q: 0.2, p: undefined, mostP: 0.05 }, [["unknown", 0, 0.05], ["draft", 0.05, 0.2], ["q", 0, 0.2]]],
  ["an unknown q that may be above p", { q: undefined, mostQ: 0.4, p: 0.3 }, [["unknown", 0, 0.3], ["p", 0, 0.3]]],
];
for (const [name, row, parts] of CASES) test(`the parts of a bar: ${name}`, () => assert.deepEqual(partsOf(row), parts));

test("lesson 4 gives the figures of its example", () => {
  const html = readFileSync(new URL("../../../specdemo/ui/static/learn/lessons.html", import.meta.url), "utf8");
  const percent = (share) => `${Math.round(100 * share)}%`;
  const rest = EXAMPLE.map(({ name, p, q }) => [name, Math.max(0, p - q)]);
  const mass = rest.reduce((sum, [, more]) => sum + more, 0);
  const shares = rest.filter(([, more]) => more).sort((a, b) => b[1] - a[1]).map(([name, more]) => `“${name}” (${percent(more / mass)})`);
  assert.ok(html.includes(`the random number ${EXAMPLE_U} times`));
  assert.ok(html.includes(`is rejected, and ${shares.join(" or ")} takes its place`));
  assert.ok(html.includes(`the common part is ${percent(1 - mass)}:`));
});
