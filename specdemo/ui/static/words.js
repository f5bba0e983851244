// What happened to a token, a round or a run, in words and figures. No DOM.

export const RULE_NAMES = { greedy: "greedy", rejection: "rejection sampling", "shared-noise": "shared noise" };

/** A plain figure with three significant digits. */
export function decimal(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.001) return "<0.001";
  return value.toFixed(3);
}

/** Whether the draft came without probabilities of its own. */
export function isCopied(round) {
  return sourceOf(round.drafted_by) !== undefined;
}

/** The status a reader sees: the one refused token has a name of its own. */
export function statusName(token) {
  return token.rejected ? "rejected" : token.status;
}

/** The status of the target's own token as it is shown; none where nothing was drafted that it could crown or correct. */
export function ownStatus(round) {
  return round.drafted.length ? round.emission.status : "";
}

/** Why a drafted token stayed or went, under the rule that decided. */
export function verdictWords(token, round, rule) {
  if (isWatched(round)) return watchedVerdict(token);
  if (!token.compared) {
    return round.drafted.some((other) => other.rejected)
      ? "Drafted after the rejected token, so thrown away without a verdict."
      : "The run ended before this token was looked at.";
  }
  return { greedy: greedyVerdict, rejection: rejectionVerdict, "shared-noise": noiseVerdict }[rule](token, round);
}

function greedyVerdict(token, round) {
  const odds = bothOdds(token.raw_p, token.raw_q, round);
  if (!token.rejected) return `${odds}: it is the target's first choice, so it stays.`;
  const first = token.target_top[0];
  const best = first ? ` (which has ${percent(first[1])})` : "";
  return `${odds}: the target's first choice is another${best}, so it goes.`;
}

function rejectionVerdict(token, round) {
  const odds = bothOdds(token.p, token.q, round);
  if (token.accept_prob >= 1) return `${odds}: no less than the draft did, so it stays for certain.`;
  const said = token.rejected ? "no" : "yes";
  return `${odds}: accepted with probability ${decimal(token.accept_prob)}; the coin (${decimal(token.u)}) said ${said}.`;
}

function noiseVerdict(token, round) {
  const odds = bothOdds(token.p, token.q, round);
  return token.rejected
    ? `${odds}: with the same noise the target picks another token, so it goes.`
    : `${odds}: with the same noise the target picks it too, so it stays.`;
}

function bothOdds(p, q, round) {
  const drafted = sourceOf(round.drafted_by) ?? `the draft ${percent(q)}`;
  return `The target gave this ${percent(p)}, ${drafted}`;
}

/** Where the target's own token came from. */
export function emissionWords(emission, round, rule) {
  if (emission.prob === null) return watchedEmission(emission, round);
  if (!round.drafted.length) return `One target pass, one token. ${chosenWords(emission, rule)}`;
  if (emission.status === "bonus") {
    const all = round.drafted.length === 1 ? "The drafted token stood" : `All ${round.drafted.length} drafted tokens stood`;
    return `${all}; the same pass gives one more token for free. ${chosenWords(emission, rule)}`;
  }
  if (rule === "rejection") {
    return `Drawn from the residual (p − q)+, what the target wants more than the draft. Its mass, ${decimal(emission.residual_mass)}, was the chance of a rejection here; this token has ${percent(emission.prob)} of it.`;
  }
  return `The target's own choice in place of the rejected token. ${chosenWords(emission, rule)}`;
}

function chosenWords(emission, rule) {
  if (rule === "greedy") return `Its first choice, with ${percent(emission.raw_prob)}.`;
  if (rule === "rejection") return `Drawn from p, where it has ${percent(emission.prob)}.`;
  return `The largest log p + noise; p is ${percent(emission.prob)}.`;
}

/** One round in a sentence. */
export function roundWords(round) {
  const accepted = round.drafted.filter((token) => token.status === "accepted").length;
  const added = round.emission ? `, then one ${round.emission.status} token` : "";
  if (isPiece(round)) return `Piece ${round.index + 1} of the text.`;
  if (!round.drafted.length) return `Round ${round.index + 1}: nothing drafted, one token by the target.`;
  return `Round ${round.index + 1}: ${accepted} of ${round.drafted.length} accepted${added}.`;
}

/** The probabilities as a row of [name, figure, meaning]; under greedy they are those at temperature 1. */
export function tokenFigures(token, round, rule) {
  if (isWatched(round)) return watchedFigures(token);
  const greedy = rule === "greedy";
  const figures = [];
  if (!isCopied(round)) figures.push(["q", percent(greedy ? token.raw_q : token.q), "draft's probability"]);
  figures.push(["p", percent(greedy ? token.raw_p : token.p), "target's probability"]);
  if (rule === "rejection") {
    const chance = token.compared ? decimal(token.accept_prob) : "not compared";
    figures.push(["min(1, p/q)", chance, "chance to be accepted"]);
    figures.push(["u", token.u === null ? "not drawn" : decimal(token.u), "the coin; stays if u < min(1, p/q)"]);
  } else if (greedy) {
    const word = !token.compared ? "not asked" : token.rejected ? "no" : "yes";
    figures.push(["first choice?", word, "is it the target's most probable token"]);
  } else {
    figures.push(["noise g", decimal(token.noise), "Gumbel noise of this token here"]);
  }
  return figures;
}

/** What verifies the drafts, in a sentence. */
export function ruleWords({ rule, k, temperature }) {
  const rules = {
    greedy: "greedy: a drafted token stays while it is the target's first choice",
    rejection: "rejection sampling: a drafted token stays with probability min(1, p/q)",
    "shared-noise": "shared noise: a drafted token stays while the target, given the same noise, picks it too",
  };
  return `Rule: ${rules[rule]}. k = ${k}, temperature ${temperature}.`;
}

/** Where a round's time went. */
export function timeWords({ draft_s: draft, verify_s: verify, other_s: rest }) {
  const time = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
  if (!draft && !verify) return `${time(rest)} in all`; // of a watched server, which tells no more
  return `draft ${time(draft)}, target pass ${time(verify)}, rest ${time(rest)}`;
}

/** Under which rule a run is verified, and who runs where. */
export function settingWords(run) {
  return run.watched ? serverWords(run) : `${ruleWords(run.config)} ${pairWords(run)}`;
}

/** Who runs where, in a sentence. */
export function pairWords({ pair, precision, device, config }) {
  return `Target ${pair.target}, drafts by ${whoDrafts(config.drafter, pair.draft)}; ${precision} on ${device}.`;
}

const SERVER = "server"; // the drafter of such runs in Python's table

/** True for a round that a watched server reported. */
export function isWatched(round) {
  return round.drafted_by === SERVER && round.drafted.length > 0;
}

/** True for a round of which only the piece of text is known. */
export function isPiece(round) {
  return round.drafted_by === SERVER && !round.drafted.length;
}

/** Why a draft token was accepted or discarded, as far as a server reports it. */
export function watchedVerdict(token) {
  if (token.status === "accepted") return `Drafted, and the server's target accepted it.${odds(token.raw_p)}`;
  const which = "the server does not report which token it was";
  return token.rejected ? `The first rejected token; ${which}.` : `Discarded after the rejected token; ${which}.`;
}

/** Where the target's own token came from, as far as a server reports it. */
export function watchedEmission(emission, round) {
  const corrected = "The target's own choice in place of the rejected token.";
  const bonus = `All ${round.drafted.length} draft tokens were accepted; the same pass gave one more.`;
  const plain = isPiece(round) ? "A piece of the text; the server does not report which of its tokens were drafted." : "One pass without a draft, one token.";
  return (!round.drafted.length ? plain : emission.status === "bonus" ? bonus : corrected) + odds(emission.raw_prob);
}

/** A token's probabilities as `tokenFigures` has them, if the server reports them. */
export function watchedFigures(token) {
  return token.raw_p === null ? [] : [["p", percent(token.raw_p), "target's probability (temperature 1)"]];
}

/** The server that wrote a run, in a sentence. */
export function serverWords({ watched, pair, config }) {
  return `Watching ${watched.server}: ${watched.engine} with ${pair.target}, temperature ${config.temperature}. It drafts and verifies by rules of its own.`;
}

function odds(p) {
  return p === null ? "" : ` The target gave it ${percent(p)}.`;
}

let kinds = {};

/** Take in the table, once, before anything is shown: { name: { who, source } }. */
export function learnDrafters(table) {
  kinds = table;
}

/** Where the tokens of a kind that only copies come from, as a clause; undefined for one that computes. */
export function sourceOf(kind) {
  return kinds[kind]?.source || undefined;
}

/** Who drafts, within a sentence; `draft` is what the draft model is called. */
export function whoDrafts(kind, draft) {
  return (kinds[kind]?.who ?? "{draft}").replace("{draft}", `the ${draft}`);
}

/** Never rounded to a wrong certainty. */
export function percent(value) {
  if (value === null || value === undefined) return "unknown";
  if (value > 0 && value < 0.001) return "<0.1%";
  if (value < 1 && value >= 0.9995) return ">99.9%";
  const digits = value < 0.1 || (value > 0.995 && value < 1) ? 1 : 0;
  return `${(100 * value).toFixed(digits)}%`;
}

const LEAST_SHARE = 0.05; // less tells nothing yet
const COARSE_S = 20; // longer waits are told in steps of five seconds

/** Behind what is told of a job `elapsed` seconds after its beginning: ", about 12 s left"; "" while that cannot be told. */
export function timeLeft(fraction, elapsed) {
  if (fraction < LEAST_SHARE || fraction >= 1) return "";
  const seconds = (elapsed * (1 - fraction)) / fraction;
  const told = seconds > COARSE_S ? 5 * Math.round(seconds / 5) : Math.max(1, Math.round(seconds));
  return `, about ${told} s left`;
}
