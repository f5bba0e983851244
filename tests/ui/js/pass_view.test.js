import assert from "node:assert/strict";
import { test } from "node:test";

import { learnTables } from "../../../specdemo/ui/static/common/tables.js";
import { captionWords, undraftedWords } from "../../../specdemo/ui/static/common/words.js";
import { PassView, columnsOf } from "../../../specdemo/ui/static/stage/pass_view.js";
import { round } from "./made.js";

learnTables({ drafters: { "draft-model": { who: "{draft}" }, "prompt-lookup": { who: "prompt lookup", empty: "the text repeats nothing" } } });

const shown = (made, phase, proposed = made.drafted.length) =>
  columnsOf({ entry: { round: made }, phase, proposed }).map(({ draft, own, mark }) => [draft && [draft.id, draft.word], own && [own.id, own.word], mark]);

test("draft tokens come one after another, and none has a verdict before the pass has ended", () => {
  const made = round(1, ["accepted", "rejected"]);
  assert.deepEqual(shown(made, "draft", 1), [[[100, ""], null, ""], [[null, ""], null, ""], [null, null, ""]]);
  assert.deepEqual(shown(made, "verify"), [[[100, ""], null, ""], [[101, ""], null, ""], [null, null, ""]]);
});

test("one pass gives a choice at each of the k + 1 places", () => {
  const rejected = round(0, ["accepted", "rejected", "discarded"]);
  rejected.drafted[2].target_top = [[7, 0.5]];
  assert.deepEqual(shown(rejected, "verdict"), [
    [[0, "accepted"], [0, "accepted"], "="],
    [[1, "rejected"], [99, "corrected"], "≠"],
    [[2, "discarded"], [7, "discarded"], ""],
    [null, [null, ""], ""],
  ]);
  assert.deepEqual(shown(round(0, ["accepted"]), "verdict"), [[[0, "accepted"], [0, "accepted"], "="], [null, [99, "bonus"], ""]]);
  const ended = round(0, ["accepted"], 1, { emission: null });
  assert.deepEqual(shown(ended, "verdict"), [[[0, "accepted"], [0, "accepted"], "="], [null, null, ""]]);
});

test("the first two rounds have a caption for each phase, later ones a sentence about the latest verdict", () => {
  const caption = (index, phase, latest = null, isPlaying = true) =>
    captionWords({ entry: { round: round(index, ["accepted", "rejected"]) }, phase }, latest, isPlaying);
  assert.match(caption(0, "draft"), /^1\. Draft: 2 tokens from the draft model, one after another\.$/);
  assert.match(caption(1, "verify", round(0, [])), /^2\. Verify: the target checks all 2 in one pass\.$/);
  assert.match(caption(1, "verdict", round(1, ["accepted"])), /^3\. Accept or correct\. Round 2: 1 of 2 accepted/);
  assert.match(caption(2, "draft", round(1, ["accepted"])), /^Round 2: 1 of 1 accepted/);
  assert.match(caption(2, "draft", round(1, ["accepted"]), false), /^1\. Draft: 2 tokens/, "a pause leaves the time to read it");
});

test("a sentence about an earlier round than the one drawn looks past", () => {
  const caption = { textContent: "", toggleAttribute: (name, value) => (caption[name] = value) };
  const entries = [0, 1, 2, 3].map((index) => ({ round: round(index, ["accepted", "rejected"]) }));
  const isPast = (index, phase, settled) => {
    PassView.prototype.say.call({ caption }, { entry: entries[index], phase, proposed: 1 }, settled, entries, {}, true);
    return caption["data-past"];
  };
  assert.equal(isPast(2, "verdict", 3), false);
  assert.equal(isPast(3, "draft", 3), true);
  assert.equal(isPast(1, "verify", 1), false, "the phase of the round itself");
});

test("a round without a draft says why", () => {
  const words = (config, lane = "speculative", tokens = 9) => {
    return undraftedWords({ round: round(0, []), lane, totals: { tokens } }, { config: { ...config, max_new_tokens: 64 } });
  };
  assert.equal(words({ k: "auto", drafter: "draft-model" }), "No draft: it would cost more than it saves here.");
  assert.equal(words({ k: "auto", drafter: "prompt-lookup" }), "No draft: the text repeats nothing, or a draft would cost more than it saves here.");
  assert.equal(words({ k: 4, drafter: "prompt-lookup" }), "No draft: the text repeats nothing.");
  assert.equal(words({ k: 4, drafter: "draft-model" }), "No draft in this round.");
  for (const k of ["auto", 4]) assert.equal(words({ k, drafter: "prompt-lookup" }, "speculative", 64), "No draft: only one more token is needed.");
  assert.equal(words({ k: 4, drafter: "draft-model" }, "baseline"), "The target alone: one pass, one token.");
});
