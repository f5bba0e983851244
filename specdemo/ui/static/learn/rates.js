// The acceptance figures of a run as different programs define them, for the table in a lesson.

import { sum } from "../stage/charts.js";
import { SPECULATIVE } from "../stage/trace.js";
import { percent } from "../common/words.js";

/** The figures of a finished run in words, by the `data-rate` of the table; "–" for those that are not defined. */
export function rateWords(trace) {
  const totals = trace?.end?.totals;
  const drafts = totals ? trace.entries(SPECULATIVE).map(({ round }) => round.drafted) : [];
  const rounds = drafts.map(({ length }) => length);
  const accepted = drafts.flat().filter(({ status }) => status === "accepted").length;
  const passes = rounds.filter((drafted) => drafted > 0).length; // with a draft
  const k = trace?.start?.run.config.k; // a number or "auto"
  return {
    compared: rate(sum(totals?.accepted_by_position ?? []), sum(totals?.compared_by_position ?? [])),
    drafted: rate(accepted, sum(rounds)),
    possible: rate(accepted, typeof k === "number" ? k * rounds.length : 0),
    tau: mean(totals?.tokens, rounds.length),
    drafted_pass: mean(accepted + passes, passes),
    accepted_pass: mean(accepted, passes),
  };
}

function rate(part, whole) {
  return whole ? percent(part / whole) : "–";
}

function mean(count, passes) {
  return passes ? (count / passes).toFixed(2) : "–";
}
