// Words and figures for what happened to a token, a round or a run. This module does not use the DOM.

import { tables } from "./tables.js";

/**
 * The words for each verification rule: the verdict on a compared draft token; how the target chose its own token, and
 * (if that differs) the token after a rejection; the figures of a draft token besides p and q.
 */
const RULES = {
  greedy: {
    verdict: greedyVerdict,
    choice: (emission, { name }) => `The ${name}'s most likely token, with probability ${percent(emission.raw_prob)}.`,
    figures: (token) => {
      const word = !token.compared ? "not compared" : token.rejected ? "no" : "yes";
      return [["most likely?", word, "whether it is the target's most likely token"]];
    },
  },
  rejection: {
    verdict: rejectionVerdict,
    choice: drawn,
    corrected: residualWords,
    figures: (token) => [
      ["min(1, p/q)", token.compared ? decimal(token.accept_prob) : "not compared", "acceptance probability"],
      ["u", token.u === null ? "not used" : decimal(token.u), "random number; accepted if u < min(1, p/q)"],
    ],
  },
  block: {
    verdict: blockVerdict,
    choice: drawn,
    corrected: (emission) =>
      `Drawn from the residual distribution, max(0, w·p − q) normalized, where w is the weight of the accepted tokens; this token has ${percent(emission.prob)} of it.`,
    figures: (token) => [
      ["h", decimal(token.accept_prob), "probability that this token's u accepts all draft tokens up to it"],
      ["u", decimal(token.u), "random number; accepted if u < h here or at a later token"],
    ],
  },
  "shared-noise": {
    verdict: noiseVerdict,
    choice: (emission, { symbol }) => `The token with the largest log ${symbol} + noise; its probability is ${percent(emission.prob)}.`,
    figures: (token) => [["noise g", decimal(token.noise), "Gumbel noise of this token at this position"]],
  },
};
/** The model that chose a token, in the words about it; `alone` is for a round without draft tokens. */
export const MODELS = {
  target: { name: "target", symbol: "p", alone: "No draft tokens: one target pass, one token." },
  draft: { name: "draft model", symbol: "q", alone: "One draft pass, one token." },
};
const SERVER = "server"; // the name in Python's table for the drafter of a watched server
const RANKS = ["1st", "2nd", "3rd", "4th", "5th"];
const UNKNOWN_TOKEN = "The server does not report which token it was.";
const UNDECIDED = "undecided"; // the doubt about a speedup whose interval includes 1
const MIN_FRACTION = 0.05; // with a smaller fraction done, the time left cannot be estimated
const COARSE_S = 20; // longer waits are rounded to five seconds

/** The rank of a token below the draft's top five. */
export const BEYOND = RANKS.length + 1;

/** A clause about where a drafter copies its tokens from; undefined for a drafter that computes probabilities. */
function sourceOf(drafter) {
  return tables.drafters[drafter]?.source || undefined;
}

/** A probability as a percentage, never rounded to 0% or 100%. */
export function percent(value) {
  if (value === null || value === undefined) return "unknown";
  if (value > 0 && value < 0.001) return "<0.1%";
  if (value < 1 && value >= 0.9995) return ">99.9%";
  const digits = value < 0.1 || (value > 0.995 && value < 1) ? 1 : 0;
  return `${(100 * value).toFixed(digits)}%`;
}

/** A figure with three decimals. */
export function decimal(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.001) return "<0.001";
  return value.toFixed(3);
}

/** A share in whole percent; "–" if it is not defined. */
export function share(value) {
  return value === null || value === undefined ? "–" : `${Math.round(100 * value)}%`;
}

/** A speedup, such as 1.37×; "–" if it is not defined. */
export function times(value) {
  return value === null || value === undefined ? "–" : `${value.toFixed(2)}×`;
}

export const grouped = (number) => number.toLocaleString("en");

/** A number of things, such as "1 token" or "1,024 tokens". */
export function counted(number, singular, plural = `${singular}s`) {
  return `${grouped(number)} ${number === 1 ? singular : plural}`;
}

/** True if a speedup is less than 1.00× when rounded to two decimals. */
export function isSlower(speedup) {
  return speedup !== null && Number(speedup.toFixed(2)) < 1;
}

/** The range of a speedup, such as (1.3–1.6); with two decimals if one does not distinguish its ends. */
export function rangeWords({ low, high }) {
  const [coarse, fine] = [1, 2].map((digits) => [low, high].map((end) => end.toFixed(digits)));
  return `(${(coarse[0] === coarse[1] ? fine : coarse).join("–")})`;
}

/** True if other work has changed the times of a run; `doubt` is that of a `round` or `end` event. */
export function isDisturbed({ doubt }) {
  return Boolean(doubt) && doubt !== UNDECIDED;
}

/** The speedup of a finished run with the doubt about it, such as 1.37× (disturbed); `end` is the event of its end. */
export function measuredTimes({ totals, doubt, spread }) {
  const words = isDisturbed({ doubt }) ? `(${doubt})` : doubt && spread ? rangeWords(spread) : "";
  return `${times(totals.speedup)} ${words}`.trim();
}

/** A speedup in words, compared with the target alone. */
export function speedWords(speedup) {
  return isSlower(speedup) ? `slower: ${times(speedup)} the speed of the target alone` : `${times(speedup)} the speed`;
}

/** The time left, such as ", about 12 s left", of a job that began `elapsed` seconds ago; "" while it is unknown. */
export function timeLeft(fraction, elapsed) {
  if (fraction < MIN_FRACTION || fraction >= 1) return "";
  const seconds = (elapsed * (1 - fraction)) / fraction;
  const shown = seconds > COARSE_S ? 5 * Math.round(seconds / 5) : Math.max(1, Math.round(seconds));
  return `, about ${shown} s left`;
}

/** True if the draft was copied, so that it has no probabilities of its own. */
export function isCopied(round) {
  return sourceOf(round.drafted_by) !== undefined;
}

function isWatched(round) {
  return round.drafted_by === SERVER && round.drafted.length > 0;
}

/** True if only the text of a round is known, as with some watched servers. */
function isPiece(round) {
  return round.drafted_by === SERVER && !round.drafted.length;
}

/** The status of a draft token as the page names it; the one rejected token has the name "rejected". */
export function statusName(token) {
  return token.rejected ? "rejected" : token.status;
}

/** The status of the target's own token as the page names it; "" if nothing was drafted. */
export function ownStatus(round) {
  return round.drafted.length ? round.emission.status : "";
}

/** The numbers of rejected and discarded tokens of a round, in words, such as "1 rejected, 2 discarded". */
export function discardWords({ drafted }) {
  const lost = drafted.filter(({ status }) => status === "discarded").map(statusName);
  const counts = ["rejected", "discarded"].map((name) => [lost.filter((one) => one === name).length, name]);
  return counts.filter(([count]) => count).map((one) => one.join(" ")).join(", ");
}

/** True if a rule accepts at random, so that a rejection has a residual distribution. */
export function hasResidual(rule) {
  return RULES[rule].corrected !== undefined;
}

/** The name of a verification rule. */
export function ruleName(rule) {
  return tables.rules[rule].label;
}

/** The reason why a draft token was accepted or discarded, under the rule of the run. */
export function verdictWords(token, round, rule) {
  if (isWatched(round)) return watchedVerdict(token, round);
  if (!token.compared) {
    return round.drafted.some((other) => other.rejected)
      ? "Drafted after the rejected token, so discarded."
      : "The run ended before this token was compared.";
  }
  return RULES[rule].verdict(token, round);
}

function greedyVerdict(token, round) {
  const odds = bothOdds(token.raw_p, token.raw_q, round);
  if (!token.rejected) return `${odds}: the target's most likely token, so accepted.`;
  const first = token.target_top[0];
  return `${odds}: the target's most likely token is a different one${first ? ` (${percent(first[1])})` : ""}, so rejected.`;
}

function rejectionVerdict(token, round) {
  const odds = bothOdds(token.p, token.q, round);
  if (token.accept_prob >= 1) return `${odds}: p ≥ q, so always accepted.`;
  const verdict = token.rejected ? "rejected" : "accepted";
  return `${odds}: acceptance probability ${decimal(token.accept_prob)}, random number ${decimal(token.u)}, so ${verdict}.`;
}

function blockVerdict(token, round) {
  const odds = bothOdds(token.p, token.q, round);
  const numbers = `h ${decimal(token.accept_prob)}, random number ${decimal(token.u)}`;
  if (token.rejected) return `${odds}: ${numbers}, and no later token passes, so rejected.`;
  return token.u < token.accept_prob ? `${odds}: ${numbers}, so accepted up to here.` : `${odds}: ${numbers}, but a later token passes, so accepted.`;
}

function noiseVerdict(token, round) {
  const odds = bothOdds(token.p, token.q, round);
  return token.rejected
    ? `${odds}: with the same noise the target picks a different token, so rejected.`
    : `${odds}: with the same noise the target picks the same token, so accepted.`;
}

function bothOdds(p, q, round) {
  return `Target ${percent(p)}, ${sourceOf(round.drafted_by) ?? `draft ${percent(q)}`}`;
}

/** True for an equal share of several rounds, of which the server reported only the sums. */
function isShare(round) {
  return isWatched(round) && !round.drafted[0].compared;
}

const SHARE = "The server reported this round only in a sum with others; its draft tokens are an equal share.";

function watchedVerdict(token, round) {
  if (isShare(round)) return SHARE;
  if (token.status === "accepted") return `The server's target accepted this draft token.${watchedOdds(token.raw_p)}`;
  return `${token.rejected ? "The first rejected token." : "Discarded after the rejected token."} ${UNKNOWN_TOKEN}`;
}

function watchedOdds(p) {
  return p === null ? "" : ` Target probability ${percent(p)}.`;
}

/** An explanation of how the target chose its own token of a round. */
export function emissionWords(emission, round, rule, model = MODELS.target) {
  const count = round.drafted.length;
  if (emission.prob === null) return watchedEmission(emission, round) + watchedOdds(emission.raw_prob);
  const { choice, corrected } = RULES[rule];
  if (!count) return `${model.alone} ${choice(emission, model)}`;
  if (emission.status === "bonus") return `${allAccepted(count)}; the same pass adds one more token. ${choice(emission, model)}`;
  return corrected ? corrected(emission, round) : `Replaces the rejected token. ${choice(emission, model)}`;
}

function allAccepted(count) {
  return count === 1 ? "The draft token was accepted" : `All ${count} draft tokens were accepted`;
}

// The mass is the mean rejection probability of a token drawn from q: Σ q·(1 − min(1, p/q)).
function residualWords({ residual_mass: mass, prob }, { drafted }) {
  const { accept_prob: accepted } = drafted.find(({ rejected }) => rejected);
  return `Drawn from the residual distribution, max(0, p − q) normalized; this token has ${percent(prob)} of it. The residual's mass ${decimal(mass)} is the mean rejection probability of a draft token here; that of the drafted one was ${decimal(1 - accepted)} = 1 − min(1, p/q).`;
}

function drawn(emission, { name }) {
  return `Drawn from the ${name}'s distribution, with probability ${percent(emission.prob)}.`;
}

function watchedEmission(emission, round) {
  if (isPiece(round)) return "A piece of the text. The server does not report which tokens were drafted.";
  if (isShare(round)) return SHARE;
  if (!round.drafted.length) return "No draft tokens: one target pass, one token.";
  if (emission.status === "bonus") return `${allAccepted(round.drafted.length)}; the same pass added one more token.`;
  return "The target's token replaces the rejected one.";
}

/**
 * The rank of the target's choice in the draft's list at the rejected token: 1 to 5, or `BEYOND`. Null if nothing was
 * rejected or the draft has no list, as with copied tokens.
 */
export function targetRank({ drafted, emission }) {
  const top = drafted.find(({ rejected }) => rejected)?.draft_top;
  return top?.length ? top.findIndex(([id]) => id === emission.id) + 1 || BEYOND : null;
}

/** The rank of the target's choice in a sentence; "" if `targetRank` is null. */
export function rankWords(round) {
  const rank = targetRank(round);
  if (rank === null) return "";
  if (rank === BEYOND) return "The target's choice was not in the draft's top five.";
  const [, probability] = round.drafted.find(({ rejected }) => rejected).draft_top[rank - 1];
  return `The target's choice ranked ${RANKS[rank - 1]} in the draft's list (${percent(probability)}).`;
}

/** The sentence before the first round of a run. */
export function openingWords({ config, watched }) {
  if (watched?.rounds === false) return "The server sends pieces of text and does not report its rounds.";
  return `Draft tokens come from ${drafterName(config, "draft model")}; the target verifies all of them in one pass.`;
}

function drafterName({ drafter }, draft) {
  return (tables.drafters[drafter]?.who ?? "{draft}").replace("{draft}", `the ${draft}`);
}

/** The number of draft tokens of a round and where they come from, in words. */
export function draftWords(round) {
  const count = round.drafted.length;
  const order = isCopied(round) || count === 1 ? "" : ", one after another";
  return `${counted(count, "token")} from ${drafterName({ drafter: round.drafted_by }, "draft model")}${order}`;
}

/** The reason why a round of a run has no draft tokens. */
export function undraftedWords({ round, lane, totals }, { config }) {
  if (lane !== "speculative") return "The target alone: one pass, one token.";
  if (isPiece(round)) return "The server does not report its draft tokens.";
  if (totals.tokens === config.max_new_tokens) return "No draft: only one more token is needed.";
  const reason = tables.drafters[config.drafter]?.empty;
  if (config.k === "auto") return `No draft: ${reason ? `${reason}, or a draft` : "it"} would cost more than it saves here.`;
  return `No draft${reason ? `: ${reason}` : " in this round"}.`;
}

const EXPLAINED_ROUNDS = 2;
const CAPTIONS = {
  draft: (round) => `1. Draft: ${draftWords(round)}.`,
  verify: ({ drafted }) => `2. Verify: ${drafted.length > 1 ? `the target checks all ${drafted.length} in one pass` : "one target pass"}.`,
  verdict: (round) => `3. Accept or correct. ${roundWords(round)}`,
};

/**
 * A sentence about a moment (see `Trace.momentAt`): its phase in the first rounds and while the clock stands still, otherwise
 * the `latest` round with a verdict.
 */
export function captionWords({ entry: { round }, phase }, latest, isPlaying) {
  const isExplained = round.index < EXPLAINED_ROUNDS || !latest || (!isPlaying && phase !== "verdict");
  return isExplained ? CAPTIONS[phase](round) : roundWords(latest);
}

/** One round in a sentence. */
export function roundWords(round) {
  if (isPiece(round)) return `Piece ${round.index + 1} of the text.`;
  if (!round.drafted.length) return `Round ${round.index + 1}: no draft tokens, one token from the target.`;
  if (isShare(round)) return `Round ${round.index + 1}: reported only in a sum with others, shown as an equal share.`;
  const accepted = round.drafted.filter((token) => token.status === "accepted").length;
  const added = round.emission ? `, then one ${round.emission.status} token` : `; the last accepted token ends the ${round.finish === "eos" ? "text" : "run"}`;
  return `Round ${round.index + 1}: ${accepted} of ${round.drafted.length} accepted${added}.`;
}

/**
 * The probabilities of a draft token as rows `[name, figure, meaning]`; under the greedy rule those at temperature 1.
 */
export function tokenFigures(token, round, rule) {
  if (isWatched(round)) return token.raw_p === null ? [] : [["p", percent(token.raw_p), "target probability at temperature 1"]];
  const greedy = rule === "greedy";
  const figures = [];
  if (!isCopied(round)) figures.push(["q", percent(greedy ? token.raw_q : token.q), "draft probability"]);
  figures.push(["p", percent(greedy ? token.raw_p : token.p), "target probability"]);
  return figures.concat(RULES[rule].figures(token));
}

/** The times that the parts of a round took, in words. */
export function timeWords({ draft_s: draft, verify_s: verify, other_s: rest }) {
  const time = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
  if (!draft && !verify) return `${time(rest)} in total`; // a watched server reports only the total
  return `draft ${time(draft)}, target pass ${time(verify)}, rest ${time(rest)}`;
}

/** The rule, the settings and the models of a run. */
export function settingWords(run) {
  const { watched, pair, config } = run;
  if (watched) {
    return `Watching ${watched.server}: ${watched.engine} with ${pair.target}, temperature ${config.temperature}. The server drafts and verifies by its own rules.`;
  }
  const { label, about } = tables.rules[config.rule];
  return `Rule: ${label}. ${about} k = ${config.k}, temperature ${config.temperature}. ${pairWords(run)}`;
}

/** The settings of a run in short. */
export function runSettings({ watched, config: { k, rule, temperature } }) {
  if (watched) return `temperature ${temperature}`;
  return `${k === "auto" ? "auto k" : `k ${k}`} · ${ruleWords(rule, temperature)}`;
}

/** A rule, and the temperature if the rule uses one. */
function ruleWords(rule, temperature) {
  return rule === "greedy" ? rule : `${rule} · temperature ${temperature}`;
}

/** The models of a run and where they run, in a sentence. */
export function pairWords({ pair, precision, device, config }) {
  return `Target model: ${pair.target}. Draft tokens from ${drafterName(config, pair.draft)}. Precision ${precision}, on ${device}.`;
}
