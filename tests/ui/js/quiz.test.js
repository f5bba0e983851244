import assert from "node:assert/strict";
import { test } from "node:test";

import { settingsOf } from "../../../specdemo/ui/static/common/page.js";
import { questionIn, restored, resultOf } from "../../../specdemo/ui/static/learn/quiz.js";
import { judge, scoreWords, whyWords } from "../../../specdemo/ui/static/learn/quiz_cards.js";
import { classLink } from "../../../specdemo/ui/static/stage/share.js";
import { learnTables } from "../../../specdemo/ui/static/common/tables.js";

learnTables({ linked: ["prompt", "k"] });

const SIDE = { label: "a", figures: [{ label: "S", value: 1, text: "1.00×" }] };
const RECORDED = { place: "a chip", option: 1, why: "Thus." };
const QUESTIONS = [{ name: "cost", options: ["x", "y", "z"] }];
const answer = (picked, option) => ({ picked, place: "here", sides: [SIDE, SIDE], verdict: { option, why: "So." } });

test("a prediction is right, wrong, or cannot be judged", () => {
  assert.deepEqual([answer(0, 0), answer(0, 2), answer(0, null)].map(judge), ["right", "wrong", "close"]);
  assert.deepEqual([0, 1].map((picked) => judge({ ...answer(picked, null), recorded: RECORDED })), ["close", "close"], "no verdict here");
  assert.equal(whyWords({ ...answer(0, null), recorded: RECORDED }), "So. Recorded on a chip: Thus.");
});

test("the score counts what was called", () => {
  const answers = [answer(0, 0), answer(1, 0), answer(2, null)];
  assert.equal(scoreWords([], 3), "No answers yet");
  assert.equal(scoreWords(answers.slice(0, 2), 3), "1 of 2 predicted correctly");
  assert.equal(scoreWords(answers, 3), "All done: 1 of 2 predicted correctly, 1 without a verdict");
});

test("an address names a question that there is, or none", () => {
  const named = ["?question=3", "?question=8", "?question=0", "?question=9", "?question=2.5", "?question=<b>", ""];
  assert.deepEqual(named.map((search) => questionIn(search, 8)), [2, 7, null, null, null, null, null]);
});

test("a result is what the events have told so far", () => {
  const events = [
    { type: "progress", text: "Waiting", fraction: 0 },
    { type: "question", question: 3, place: "here" },
    { type: "progress", text: "Measuring", fraction: 0.5 },
    { type: "side", index: 0, ...SIDE },
    { type: "side", index: 1, ...SIDE },
    { type: "verdict", option: null, why: "So." },
  ];
  const early = resultOf(events.slice(0, 4));
  assert.deepEqual([early.question, early.place, early.progress.fraction, early.sides.length, early.verdict], [3, "here", 0.5, 1, null]);
  assert.deepEqual(resultOf(events).verdict, { option: null, why: "So." });
  assert.equal(resultOf([{ type: "error", message: "No." }]).error, "No.");
});

test("answers of an earlier visit come back, and nothing that only looks like one", () => {
  const good = answer(2, null);
  const recorded = { ...good, recorded: RECORDED };
  for (const kept of [good, recorded]) assert.deepEqual(restored(JSON.stringify({ cost: kept, gone: kept }), QUESTIONS), new Map([["cost", kept]]));
  const bad = [answer(3, 0), answer(-1, 0), answer(0, 3), answer("0", 0), answer(0, undefined), { ...good, sides: [SIDE] }];
  bad.push({ ...good, sides: [SIDE, { label: "b", figures: [{}] }] }, { ...good, place: {} }, { picked: 1 }, 3, null);
  bad.push({ ...good, recorded: { ...RECORDED, option: 3 } }, { ...good, recorded: { option: 1 } });
  for (const cost of bad) assert.equal(restored(JSON.stringify({ cost }), QUESTIONS).size, 0, JSON.stringify(cost));
  for (const text of [null, "{", "null", "[]", "3"]) assert.equal(restored(text, QUESTIONS).size, 0);
});

test("a class link has the place, the settings and the recording", () => {
  const config = settingsOf(["prompt", "k", "auto", "seed"], ["a & b", 4, false, null]);
  assert.deepEqual(config, { prompt: "a & b", k: 4 });
  assert.equal(settingsOf(["k", "auto"], [4, true]).k, "auto");
  const link = classLink("https://host/app/?k=9&trace=old#x", { lesson: "quiz", question: "3" }, config, null);
  assert.equal(link, "https://host/app/?lesson=quiz&question=3&prompt=a+%26+b&k=4");
  const played = new URL(classLink("https://host/", { lesson: "2", question: null }, config, "paris")).searchParams;
  assert.deepEqual([played.get("lesson"), played.get("trace"), played.get("question")], ["2", "paris", null]);
});
