import assert from "node:assert/strict";
import { test } from "node:test";

import {
  counted,
  decimal,
  draftWords,
  emissionWords,
  MODELS,
  openingWords,
  ownStatus,
  pairWords,
  percent,
  rangeWords,
  rankWords,
  roundWords,
  timeLeft,
  tokenFigures,
  verdictWords,
} from "../../../specdemo/ui/static/common/words.js";
import { learnTables } from "../../../specdemo/ui/static/common/tables.js";
import { own, round, token } from "./made.js";

learnTables({
  drafters: {
    "draft-model": { who: "{draft}", source: "" },
    "prompt-lookup": { who: "prompt lookup", source: "it was copied from earlier text" },
    combined: { who: "the combined drafter", source: "" },
  },
});

test("no probability is rounded to a wrong certainty", () => {
  const shown = [0, 0.0004, 0.012, 0.5, 0.996, 0.9999, 1, null].map(percent);
  assert.deepEqual(shown, ["0.0%", "<0.1%", "1.2%", "50%", "99.6%", ">99.9%", "100%", "unknown"]);
  assert.deepEqual([0, 0.00001, 0.25, null].map(decimal), ["0.000", "<0.001", "0.250", "–"]);
});

test("under rejection the verdict has both probabilities and the random number", () => {
  const drafted = round(0, ["rejected"]);
  const refused = token(1, "rejected", { p: 0.03, q: 0.61, accept_prob: 0.049, u: 0.2 });
  assert.equal(
    verdictWords(refused, drafted, "rejection"),
    "Target 3.0%, draft 61%: acceptance probability 0.049, random number 0.200, so rejected.",
  );
  const kept = token(1, "accepted", { p: 0.3, q: 0.6, accept_prob: 0.5, u: 0.2 });
  assert.match(verdictWords(kept, drafted, "rejection"), /random number 0\.200, so accepted\.$/);
  const certain = token(1, "accepted", { p: 0.8, q: 0.6, accept_prob: 1, u: 0.9 });
  assert.match(verdictWords(certain, drafted, "rejection"), /always accepted/);
});

test("under greedy the verdict names the target's most likely token", () => {
  const facts = { raw_p: 0.03, raw_q: 0.61, target_top: [[7, 0.41]] };
  assert.match(verdictWords(token(1, "rejected", facts), round(0, []), "greedy"), /a different one \(41%\), so rejected/);
  assert.match(verdictWords(token(1, "accepted", facts), round(0, []), "greedy"), /most likely token, so accepted/);
});

test("under block verification a later token can carry an earlier one", () => {
  const drafted = round(0, ["accepted"]);
  const words = (how, u) => verdictWords(token(1, how, { p: 0.3, q: 0.6, accept_prob: 0.5, u }), drafted, "block");
  assert.match(words("accepted", 0.2), /h 0\.500, random number 0\.200, so accepted up to here\.$/);
  assert.match(words("accepted", 0.7), /but a later token passes, so accepted\.$/);
  assert.match(words("rejected", 0.7), /no later token passes, so rejected\.$/);
  const corrected = own(5, "corrected", { prob: 0.4, residual_mass: 0.427 });
  assert.match(emissionWords(corrected, round(0, ["rejected"]), "block"), /weight of the accepted tokens; this token has 40% of it/);
});

test("under shared noise the verdict says whether the target picks the same token", () => {
  assert.match(verdictWords(token(1, "rejected"), round(0, []), "shared-noise"), /picks a different token/);
  assert.match(verdictWords(token(1, "accepted"), round(0, []), "shared-noise"), /picks the same token, so accepted/);
});

test("a token that was not compared has the reason", () => {
  const fell = token(1, "discarded");
  assert.match(verdictWords(fell, round(0, ["rejected", "discarded"]), "greedy"), /after the rejected token/);
  assert.match(verdictWords(fell, round(0, ["accepted", "discarded"]), "greedy"), /run ended/);
});

test("a copied token has no draft probability", () => {
  const copying = round(0, ["accepted"], 1, { drafted_by: "prompt-lookup" });
  const kept = token(1, "accepted", { raw_p: 0.5 });
  assert.match(verdictWords(kept, copying, "greedy"), /it was copied from earlier text/);
  assert.ok(!tokenFigures(kept, copying, "greedy").some(([name]) => name === "q"));
});

test("a correction under rejection names the residual, elsewhere the target's choice", () => {
  const corrected = own(5, "corrected", { prob: 0.4, residual_mass: 0.427, raw_prob: 0.41 });
  const drafted = round(0, ["rejected"]);
  const sampled = { drafted: [token(1, "rejected", { accept_prob: 0.099 })] };
  assert.equal(
    emissionWords(corrected, sampled, "rejection"),
    "Drawn from the residual distribution, max(0, p − q) normalized; this token has 40% of it. The residual's mass 0.427 is the mean rejection probability of a draft token here; that of the drafted one was 0.901 = 1 − min(1, p/q).",
  );
  assert.match(emissionWords(corrected, drafted, "greedy"), /^Replaces the rejected token\. .* probability 41%/);
  assert.match(emissionWords(own(5, "bonus"), round(0, ["accepted", "accepted"]), "rejection"), /^All 2 draft tokens were accepted/);
  assert.match(emissionWords(own(5, "bonus"), round(0, []), "greedy"), /^No draft tokens: one target pass, one token/);
});

test("the draft's own lane names the draft model and its probability", () => {
  const words = (rule) => emissionWords(own(5, "bonus", { prob: 0.3, raw_prob: 0.83 }), round(0, []), rule, MODELS.draft);
  assert.equal(words("greedy"), "One draft pass, one token. The draft model's most likely token, with probability 83%.");
  assert.equal(words("rejection"), "One draft pass, one token. Drawn from the draft model's distribution, with probability 30%.");
  assert.match(words("shared-noise"), /largest log q \+ noise; its probability is 30%/);
});

test("one of a thing is not several", () => {
  assert.deepEqual([1, 2, 1024].map((number) => counted(number, "pass", "passes")), ["1 pass", "2 passes", "1,024 passes"]);
});

test("figures fit the rule", () => {
  const names = (rule) => tokenFigures(token(1, "accepted"), round(0, ["accepted"]), rule).map(([name]) => name);
  assert.deepEqual(names("rejection"), ["q", "p", "min(1, p/q)", "u"]);
  assert.deepEqual(names("block"), ["q", "p", "h", "u"]);
  assert.deepEqual(names("greedy"), ["q", "p", "most likely?"]);
  assert.deepEqual(names("shared-noise"), ["q", "p", "noise g"]);
});

test("a round is one sentence", () => {
  assert.equal(roundWords(round(2, ["accepted", "rejected"])), "Round 3: 1 of 2 accepted, then one corrected token.");
  assert.equal(roundWords(round(0, [])), "Round 1: no draft tokens, one token from the target.");
  const last = (finish) => roundWords(round(5, ["accepted", "accepted"], 1, { emission: null, finish }));
  assert.equal(last("eos"), "Round 6: 2 of 2 accepted; the last accepted token ends the text.");
  assert.equal(last("length"), "Round 6: 2 of 2 accepted; the last accepted token ends the run.", "on a watched server");
});

test("Python's table names the drafter; an unknown drafter is no error", () => {
  const about = (drafter) =>
    pairWords({ pair: { target: "T", draft: "small draft" }, precision: "bf16", device: "a CPU", config: { drafter } });
  assert.equal(about("prompt-lookup"), "Target model: T. Draft tokens from prompt lookup. Precision bf16, on a CPU.");
  assert.equal(about("combined"), "Target model: T. Draft tokens from the combined drafter. Precision bf16, on a CPU.");
  assert.equal(about("of tomorrow"), "Target model: T. Draft tokens from the small draft. Precision bf16, on a CPU.");
});

test("the caption of a draft names its drafter", () => {
  const words = (how, more) => draftWords(round(0, how, 1, more));
  assert.equal(words(["accepted", "rejected"]), "2 tokens from the draft model, one after another");
  assert.equal(words(["accepted", "rejected"], { drafted_by: "prompt-lookup" }), "2 tokens from prompt lookup");
  assert.equal(words(["rejected"]), "1 token from the draft model");
});

test("before the first round, the run's own drafter is named", () => {
  const words = ["draft-model", "prompt-lookup"].map((drafter) => openingWords({ config: { drafter } }));
  const rest = "; the target verifies all of them in one pass.";
  assert.deepEqual(words, [`Draft tokens come from the draft model${rest}`, `Draft tokens come from prompt lookup${rest}`]);
  assert.match(openingWords({ config: { drafter: "server" }, watched: { rounds: false } }), /^The server sends pieces of text/);
});

test("without a draft the target's token has no status on the page", () => {
  assert.equal(ownStatus(round(0, [])), "");
  assert.equal(ownStatus(round(0, ["accepted"])), "bonus");
  assert.equal(ownStatus(round(0, ["rejected"])), "corrected");
});

test("a token that was not compared has no acceptance probability", () => {
  const chance = (how) => tokenFigures(token(1, how, { accept_prob: 1 }), round(0, ["rejected", "discarded"]), "rejection")[2][1];
  assert.equal(chance("discarded"), "not compared");
  assert.equal(chance("rejected"), "1.000");
});

test("what is left is told as soon as it can be, coarsely where it is long", () => {
  assert.equal(timeLeft(0, 3), "");
  assert.equal(timeLeft(0.04, 3), "");
  assert.equal(timeLeft(0.25, 31), ", about 95 s left");
  assert.equal(timeLeft(0.5, 7.4), ", about 7 s left");
  assert.equal(timeLeft(0.99, 1), ", about 1 s left");
  assert.equal(timeLeft(1, 60), "");
});

test("a rejected token has the draft's rank of the target's choice, if the draft has a list", () => {
  const words = (id, draft_top) => rankWords({ drafted: [token(1, "accepted"), token(2, "rejected", { draft_top })], emission: own(id, "corrected") });
  const list = [[2, 0.5], [3, 0.25], [4, 0.1], [5, 0.05], [6, 0.01]];
  assert.equal(words(3, list), "The target's choice ranked 2nd in the draft's list (25%).");
  assert.equal(words(2, list), "The target's choice ranked 1st in the draft's list (50%).", "possible if both draw at random");
  assert.equal(words(9, list), "The target's choice was not in the draft's top five.");
  assert.equal(words(3, []), "", "copied");
  assert.equal(rankWords(round(0, ["accepted"])), "");
});

test("the range of a speedup has as many decimals as its ends need", () => {
  assert.equal(rangeWords({ low: 1.312, high: 1.63 }), "(1.3–1.6)");
  assert.equal(rangeWords({ low: 1.512, high: 1.546 }), "(1.51–1.55)");
});
