import assert from "node:assert/strict";
import { test } from "node:test";

import { plotText } from "../../../specdemo/ui/static/common/plotly_chart.js";
import { bandOf, figureWords, fillBars, lastCell, probability, rowWords, startWords } from "../../../specdemo/ui/static/proof/proof.js";

const SAMPLES = {
  drawn: 500,
  draws: 2000,
  total_variation: 0.066,
  noise_mean: 0.07,
  noise_high: 0.093,
  alpha: 0.58,
  seconds: 11.42,
  passes: 47,
  passes_saved: 13899,
  texts: [
    [" a <b>dog</b> & me", 286, 306],
    ["\n\n", 200, 190],
  ],
  others: [1012, 14, 4],
};

function figure() {
  return { data: [{ uid: "baseline" }, { uid: "speculative" }], layout: { yaxis: {} } };
}

test("an audited prompt is identical, or parts somewhere, with the gap as far as it is known", () => {
  assert.deepEqual(rowWords({ identical: true, divergence: null, gap: null }), { same: true, words: "identical" });
  const apart = { identical: false, divergence: 16, gap: 0.0123 };
  assert.deepEqual(rowWords(apart), { same: false, words: "differ at token 17; the target's two most likely tokens are 1.2% apart" });
  assert.equal(rowWords({ ...apart, gap: null }).words, "differ at token 17");
});

test("a prompt's speedup comes with the doubt about it", () => {
  const shown = ["disturbed", "undecided", null, undefined].map((doubt) => lastCell({ speedup: 1.371, doubt })[0]);
  assert.deepEqual(shown, ["1.37× (disturbed)", "1.37×", "1.37×", "1.37×"]);
});

test("where other libraries' texts part, each way names the token it wrote first, with both logits", () => {
  const candidates = [
    { text: " with", alone: 21.625, verified: 21.375 },
    { text: " and", alone: 21.5, verified: null },
  ];
  const apart = { identical: false, divergence: 34, gap: 0.125, candidates };
  const words = "differ at token 35; logits: target alone “␣with” 21.63, “␣and” 21.50; with drafts “␣and” lower, “␣with” 21.38";
  assert.deepEqual(rowWords(apart), { same: false, words });
});

test("a p-value is written as exactly as makes sense", () => {
  const written = [null, undefined, 0, 1e-150, 8.75e-69, 0.00012, 0.034, 0.448, 1].map(probability);
  assert.deepEqual(written, ["–", "–", "<1e-99", "<1e-99", "9e-69", "1e-4", "0.034", "0.45", "1.00"]);
});

test("the band has room for what chance makes and for the samples, in one scale", () => {
  const { mark, mean, high } = bandOf(SAMPLES);
  assert.ok(mark < high && mean < high && high < 0.5, "inside");
  assert.ok(Math.abs(mark / high - 0.066 / 0.093) < 1e-12);
  const far = bandOf({ ...SAMPLES, total_variation: 0.73 });
  assert.ok(far.mark > 0.8 && far.mark < 1 && far.high < 0.2, "far outside, and still on the scale");
  assert.equal(bandOf({ drawn: 0, draws: 10 }), null);
});

test("what is done is said in a sentence", () => {
  const drawing = { proof: "distribution", draws: 2000, prompt: "A dog is", max_new_tokens: 3, temperature: 1, top_k: 4 };
  assert.equal(startWords(drawing), "Drawing 3 tokens after “A dog is”, 2,000 times with drafts and as many times without drafts (temperature 1, top-k 4)");
  const audit = { proof: "greedy", prompts: 8, temperature: 0, max_new_tokens: 48 };
  assert.equal(startWords(audit), "Writing 48 tokens after each of 8 prompts, with and without drafts (greedy decoding)");
  const sampled = startWords({ ...audit, proof: "shared-noise", temperature: 0.8 });
  assert.match(startWords({ ...audit, proof: "other-libraries" }), /with and without drafts \(greedy decoding as in other libraries\)$/);
  assert.match(sampled, /with and without drafts \(temperature 0.8, shared noise\)$/);
});

test("figures are the server's, and unknown ones are dashes", () => {
  const words = figureWords(SAMPLES, { rule: "true-rule" });
  assert.equal(words.total_variation, "0.066");
  assert.equal(words.alpha, "58%");
  assert.equal(words.p_value, "–");
  assert.match(words["p-words"], /known at the end$/);
  assert.equal(words.passes_saved, "13,899");
  assert.equal(words["drawn-words"], "of 2,000 draws per sample, in 11.4 s");
  assert.equal(words["passes-words"], "model passes reused, 47 computed");
  assert.equal(words["band-words"], "expected by chance: about 0.070, rarely over 0.093");
  const judged = figureWords({ ...SAMPLES, p_value: 0.45 }, { rule: "true-rule", significance: 0.0001 });
  assert.equal(judged["p-words"], "χ² p-value; below 0.0001, the difference is significant");
  const none = figureWords({ drawn: 0, draws: 10 }, { rule: "accept-everything" });
  assert.deepEqual([none.total_variation, none.alpha, none.passes_saved], ["–", "–", "–"]);
  assert.match(none["alpha-words"], / under this rule$/);
});

test("each way fills its bars, names in their places, and the rest is one pair", () => {
  const made = figure();
  fillBars(made, SAMPLES, 12);
  const [baseline, speculative] = made.data;
  assert.deepEqual(speculative.x, [286, 200, 14]);
  assert.deepEqual(baseline.x, [306, 190, 4]);
  assert.deepEqual(baseline.y, [0, 1, 2]);
  assert.deepEqual(made.layout.yaxis.tickvals, [0, 1, 2]);
  assert.deepEqual(made.layout.yaxis.ticktext, ["a &lt;b&gt;dog&lt;/b…", "⏎⏎", "1,012 others"]);
  assert.equal(speculative.customdata[0], " a &lt;b&gt;dog&lt;/b&gt; &amp; me");
  const all = figure();
  fillBars(all, { ...SAMPLES, others: [0, 0, 0] }, 12);
  assert.equal(all.data[0].x.length, 2, "no others");
});

test("text in a chart is taken literally and cut between letters", () => {
  assert.equal(plotText("<a href='x'>&amp;"), "&lt;a href='x'&gt;&amp;amp;");
  assert.equal(plotText("a\r\nb\tc"), "a⏎b⇥c");
  assert.equal(plotText("😀😀😀😀", 3), "😀😀…");
});
