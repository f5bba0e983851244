// The sentences about a greedy run with the draft model: records/sentences.py for a browser.

import { counted, grouped, isSlower, share, times } from "../common/words.js";
import { bestLength } from "./figures.js";

const REPETITIVE = 0.9;
const END_TO_END = 0.03;
const DISTURBED = "disturbed";
const ABOVE_TAU = "above τ";
const UNDECIDED = "undecided";
const DOUBTS = {
  [DISTURBED]: "Pass times were uneven; other work may have disturbed the run.",
  [ABOVE_TAU]: "A speedup above τ is not possible; other work slowed the target alone.",
};

export function closingSentence(totals, finish, config, calibration) {
  const isStopped = finish === "stopped";
  const same = isStopped ? "Same text so far" : "Same text";
  const text = totals.identical === null ? "" : totals.identical ? same : "Different text";
  const passes = passWords(totals);
  const isSlow = isSlower(totals.speedup);
  const sentences = isStopped ? ["Stopped early."] : [];
  if (totals.speedup === null) {
    sentences.push(text ? `${text}, ${passes}.` : `${passes}.`);
    if (config.baseline) sentences.push("Too few tokens to measure a speed.");
  } else if (isSlow) {
    if (text) sentences.push(`${text}.`);
    sentences.push(`Slower: ${speedWords(totals)}, ${passes}.`);
  } else sentences.push(text ? `${text} at ${times(totals.speedup)} the speed, ${passes}.` : `${speedWords(totals)}, ${passes}.`);
  if (totals.alpha_drafted === null) sentences.push(nothingDrafted(config, calibration));
  else if (totals.alpha_compared !== null) {
    sentences.push(`Acceptance rate α ${share(totals.alpha_compared)}.`);
    if (isSlow && calibration) sentences.push(whySlower(totals.alpha_compared, totals.break_even_alpha, config, calibration));
  }
  return sentences.join(" ");
}

const speedWords = ({ speedup }) => `${times(speedup)} the speed of the target alone`;

function passWords(totals) {
  const passes = counted(totals.passes, "target pass", "target passes");
  if (![0, totals.tokens].includes(totals.baseline_tokens)) {
    const alone = `target alone: ${counted(totals.baseline_passes, "pass", "passes")} for ${counted(totals.baseline_tokens, "token")}`;
    return `${passes} for ${counted(totals.tokens, "token")} (${alone})`;
  }
  return totals.passes_saved ? `${passes} instead of ${grouped(totals.tokens)}` : `${passes}, one for each token`;
}

function whySlower(alpha, breakEven, config, calibration) {
  if (breakEven === null) return "Drafting costs more here than it can save at any acceptance rate.";
  if (alpha >= breakEven) return `Calibration gave a break-even acceptance rate of ${share(breakEven)}, but this run was slower.`;
  const best = bestLength(Array(calibration.v.length - 1).fill(alpha), calibration);
  if (config.k !== "auto" && best > 0 && best < config.k) {
    return `A draft length of ${counted(config.k, "token")} is too long for this text. Try k = ${best}.`;
  }
  return `The break-even acceptance rate is ${share(breakEven)}.`;
}

function nothingDrafted(config, calibration) {
  if (config.max_new_tokens === 1) return "Nothing was drafted: one new token needs no draft.";
  if (config.k !== "auto" || (calibration?.v.length ?? 0) < 2) return "Nothing was drafted.";
  const { c, v } = calibration;
  return `Nothing was drafted: a draft token costs ${share((c + v[1] - v[0]) / v[0])} of a target pass here, more than it saves.`;
}

/** Why the speedup of a single run cannot be trusted; null if it can. */
export function doubt(totals, trusted) {
  if (trusted?.disturbed) return DISTURBED;
  if (trusted && trusted.low <= 1 && trusted.high >= 1) return UNDECIDED;
  return totals.speedup !== null && totals.tau !== null && totals.speedup > totals.tau ? ABOVE_TAU : null;
}

export function remarks(totals, finish, distinct, trusted) {
  const sentences = [];
  const [whole, speedup] = [totals.speedup_end_to_end, totals.speedup];
  if (whole && speedup && Math.abs(whole / speedup - 1) > END_TO_END) {
    if (isSlower(whole) && !isSlower(speedup)) sentences.push("Slower than the target alone if prompt processing counts.");
    sentences.push(`With prompt processing: ${times(whole)}.`);
  }
  const doubted = doubt(totals, trusted);
  if (doubted === UNDECIDED) {
    sentences.push(`Faster or slower is undecided: 95 % interval ${times(trusted.low)} to ${times(trusted.high)}.`);
  }
  if (doubted in DOUBTS) sentences.push(DOUBTS[doubted]);
  if (finish !== "stopped") sentences.push(...orderOfEnds(totals));
  if (distinct !== null && distinct < REPETITIVE && totals.passes_saved) {
    sentences.push("The output repeats itself, which is easy to predict and raises the speedup.");
  }
  return sentences.join(" ");
}

function orderOfEnds({ speedup_end_to_end: speedup, tokens, baseline_tokens: alone }) {
  if (speedup === null) return [];
  const lengths = `${counted(tokens, "token")} against ${grouped(alone)}`;
  if (speedup >= 1 && speedup < tokens / alone) return [`The speculative lane ends later because its text is longer: ${lengths}.`];
  if (tokens / alone < speedup && speedup < 1) return [`The speculative lane ends earlier because its text is shorter: ${lengths}.`];
  return [];
}

export function badge(totals) {
  if (!totals.baseline_tokens) return null;
  if (totals.divergence === null) return { kind: "same", text: "Identical to the target alone, token for token." };
  const gap = totals.divergence_gap;
  const apart = gap === null ? "" : `; the target's top two tokens are ${gap.toFixed(4)} apart there`;
  return { kind: "different", text: `Differs from the target alone from output token ${totals.divergence + 1} on${apart}.` };
}

export function draftDivergenceSentence(totals) {
  if (!totals.draft_alone_tokens) return null;
  if (totals.draft_divergence !== null) {
    return `The text of the draft model alone differs from the target's text from token ${totals.draft_divergence + 1} on.`;
  }
  const target = totals.baseline_tokens || totals.tokens;
  const shorter = counted(Math.min(totals.draft_alone_tokens, target), "token");
  return `The draft model alone wrote the ${totals.draft_alone_tokens === target ? "same" : "same first"} ${shorter} as the target.`;
}
