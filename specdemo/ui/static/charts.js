// The points of the six charts, by the uid of each trace. `{}` leaves a trace of the skeleton blank. No DOM, no Plotly.

import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";
import { ownStatus } from "./words.js";

/** The charts that have one place a round. */
export const BY_ROUND = ["acceptance", "rates", "speedup"];
/** What of a bar's place is left empty, as Python has it. */
export const BAR_GAP = 0.18;
const ROOM_TOKENS = 16; // the race begins with room for so many tokens of the target alone
const RACE_KEYS = {
  [SPECULATIVE]: ["seconds", "tokens"],
  [BASELINE]: ["baseline_seconds", "baseline_tokens"],
  [DRAFT]: ["draft_alone_seconds", "draft_alone_tokens"],
};

/** One bar a round, or one for every `bin` rounds, as high as their mean; `bins` as `liveAxes` has them. */
export function acceptancePoints(entries, markLift, { bin, last, marked }) {
  const rounds = entries.map(({ round }) => round);
  const kept = rounds.map(({ drafted }) => drafted.filter(({ status }) => status === "accepted").length);
  const discarded = rounds.map(({ drafted }, i) => drafted.length - kept[i]);
  const bars = (values) => (bin > 1 ? binned(values, bin, last) : pointsAt(roundNumbers(entries), values));
  const marks = (status) => {
    if (!marked) return {};
    const chosen = rounds.filter((round) => round.emission && ownStatus(round) === status);
    return pointsAt(
      chosen.map(({ index }) => index + 1),
      chosen.map(({ drafted }) => drafted.length + markLift),
    );
  };
  return {
    accepted: bars(kept),
    discarded: bars(discarded),
    corrected: marks("corrected"),
    bonus: marks("bonus"),
  };
}

export function ratePoints(entries) {
  return { alpha: pointsOfFigure(entries, "alpha_compared"), tau: pointsOfFigure(entries, "tau") };
}

/** The lines end at the figures of the moment, which may have come after the round: with a step of the target alone. */
export function speedupPoints(entries, totals) {
  const line = (name) => {
    const points = pointsOfFigure(entries, name);
    if (points.y && totals) points.y[points.y.length - 1] = totals[name];
    return points;
  };
  const speedup = line("speedup");
  const { x = [], y = [] } = speedup;
  return { speedup, theory: line("s_theory"), "speedup-lead": pointsAt(x.slice(-1), y.slice(-1)) };
}

/** `played`: lane -> its entries played so far, for the lanes that run. */
export function racePoints(played) {
  const points = {};
  for (const [lane, [seconds, tokens]] of Object.entries(RACE_KEYS)) {
    const entries = played[lane] ?? [];
    const x = entries.map(({ totals }) => totals[seconds]);
    const y = entries.map(({ totals }) => totals[tokens]);
    const shown = lane in played ? {} : { visible: false };
    points[lane] = { ...pointsAt(x, y), ...shown };
    points[`${lane}-lead`] = { ...pointsAt(x.slice(-1), y.slice(-1)), ...shown };
  }
  return points;
}

/** Upper bar: the speculative lane; lower: the target alone, if it runs. */
export function timePoints(totals, hasBaseline) {
  if (!totals) return {};
  const alone = hasBaseline ? secondsWords(totals.baseline_seconds) : "not run";
  return {
    drafting: { x: [totals.draft_s, 0] },
    verifying: { x: [totals.verify_s, totals.baseline_verify_s] },
    rest: { x: [totals.other_s, totals.baseline_other_s], text: [secondsWords(totals.seconds), alone] },
  };
}

export function positionPoints(totals) {
  if (!totals) return {};
  const { accepted_by_position: accepted, compared_by_position: compared } = totals;
  const points = pointsAt(
    compared.map((_, place) => place + 1),
    compared.map((count, place) => (count ? accepted[place] / count : null)),
  );
  return { position: { ...points, text: compared.map((count, place) => `${accepted[place]} of ${count}`) } };
}

/**
 * A point the axes of a chart reach over whatever has been played: the end of all that has arrived of the run,
 * so that they hold still while it is played or scrubbed, and room for the target's first tokens.
 */
export function axisReach(name, trace) {
  const latest = (lane) => trace?.entries(lane).at(-1)?.totals;
  if (BY_ROUND.includes(name)) return { x: (trace?.entries(SPECULATIVE).length ?? 0) + 0.5 };
  if (name === "position") return { x: (latest(SPECULATIVE)?.compared_by_position.length ?? 0) + 0.5 };
  const lanes = name === "time" ? [SPECULATIVE, BASELINE] : Object.keys(RACE_KEYS);
  const ends = lanes.map((lane) => RACE_KEYS[lane].map((key) => latest(lane)?.[key] ?? 0));
  const step = trace?.start?.run.calibration?.step_s ?? 0;
  const seconds = Math.max(ROOM_TOKENS * step, ...ends.map(([x]) => x));
  return name === "time" ? { x: seconds } : { x: seconds, y: Math.max(ROOM_TOKENS, ...ends.map(([, y]) => y)) };
}

function binned(values, bin, last) {
  const firsts = values.map((_, i) => i).filter((i) => i % bin === 0);
  if (!firsts.length) return {};
  const widths = firsts.map((first) => Math.min(bin, last - first));
  const means = firsts.map((first) => {
    const group = values.slice(first, first + bin);
    return group.reduce((sum, value) => sum + value) / group.length;
  });
  return { x: firsts.map((first, i) => first + (widths[i] + 1) / 2), y: means, width: widths.map((width) => width * (1 - BAR_GAP)) };
}

function secondsWords(seconds) {
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

function roundNumbers(entries) {
  return entries.map(({ round }) => round.index + 1);
}

function pointsOfFigure(entries, name) {
  return pointsAt(
    roundNumbers(entries),
    entries.map(({ totals }) => totals[name]),
  );
}

function pointsAt(x, y) {
  return x.length ? { x, y } : {};
}
