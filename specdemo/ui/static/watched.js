// Words for runs of watched servers, which report less than this program. Pure; no DOM.

import { percent } from "./percent.js";

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
