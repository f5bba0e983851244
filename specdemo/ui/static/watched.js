// Words for runs of servers that are watched, which tell less than this program does of its own. Pure; no DOM.

import { percent } from "./percent.js";

const SERVER = "server"; // the kind of drafter of such runs, as Python's table has it

/** Whether a round is of a watched server and was told as one. */
export function isWatched(round) {
  return round.drafted_by === SERVER && round.drafted.length > 0;
}

/** Whether all that is known of a round is the piece of text that came. */
export function isPiece(round) {
  return round.drafted_by === SERVER && !round.drafted.length;
}

/** Why a drafted token stayed or went, as far as a server tells. */
export function watchedVerdict(token) {
  if (token.status === "accepted") return `Drafted, and the server's target kept it.${odds(token.raw_p)}`;
  const which = "which token it was, the server does not tell";
  return token.rejected ? `The first that was refused; ${which}.` : `Thrown away behind the refused one; ${which}.`;
}

/** Where the target's own token came from, as far as a server tells. */
export function watchedEmission(emission, round) {
  const corrected = "The target's own choice in place of the refused token.";
  const bonus = `All ${round.drafted.length} drafted tokens stood; the same pass gave one more.`;
  const plain = isPiece(round) ? "A piece of the text; which of its tokens were drafted, the server does not tell." : "One pass without a draft, one token.";
  return (!round.drafted.length ? plain : emission.status === "bonus" ? bonus : corrected) + odds(emission.raw_prob);
}

/** What a server tells of a token's probabilities, as `tokenFigures` has them. */
export function watchedFigures(token) {
  return token.raw_p === null ? [] : [["p", percent(token.raw_p), "target's probability (temperature 1)"]];
}

/** Who wrote it, in a sentence. */
export function serverWords({ watched, pair, config }) {
  return `Watching ${watched.server}: ${watched.engine} with ${pair.target}, temperature ${config.temperature}. It drafts and verifies by rules of its own.`;
}

function odds(p) {
  return p === null ? "" : ` The target gave it ${percent(p)}.`;
}
