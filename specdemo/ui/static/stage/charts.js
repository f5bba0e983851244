// The data points and the help of each chart. The points are given by the uid of the chart's traces; `{}`
// leaves a trace of Python's skeleton empty. This module uses neither the DOM nor Plotly.

import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";
import { BEYOND, counted, share, speedWords, targetRank } from "../common/words.js";

/** The chart that follows a run while it plays, with axes from `raceAxes`. */
export const LIVE = "race";
/** The charts with rounds along the x axis. */
export const BY_ROUND = ["rates", "speedup"];
/** The charts that change with each speculative round, and those that change with each round of any lane. */
export const CHANGED_BY_ROUND = [...BY_ROUND, "position", "ranks", "entropy"];
export const CHANGED_BY_LANES = ["race", "time"];
export const NOT_MEASURED = "This value was not measured for this run.";
export const NOTHING_COMPARED = "No draft token has a known verdict yet.";
// From the start, the axes of "race" and "time" have room for this many tokens of the target alone.
const ROOM_TOKENS = 16;
const POSITIONS_SHOWN = 6;
const MIN_SPEEDUP = 1.5; // the speedup that the axis of "speedup" includes from the start
const ROOM_RANKS = 4; // the count that the axis of "ranks" includes from the start
// The bars of "entropy" have this width; the last one also has all higher values.
const BITS_PER_BAR = 0.5;
const ENTROPY_BARS = 5;
const RACE_KEYS = {
  [SPECULATIVE]: ["seconds", "tokens"],
  [BASELINE]: ["baseline_seconds", "baseline_tokens"],
  [DRAFT]: ["draft_alone_seconds", "draft_alone_tokens"],
};

/** The help of each chart, in the form of `TERMS` in helps.js, by the name that `data-help` has. */
export const CHART_TERMS = {
  rounds: {
    title: "Tokens per round",
    sentence: "One bar per round: accepted tokens below, rejected and discarded tokens above; the mark is the target's own token.",
    formula: "tokens of a round = accepted + 1, or accepted if an accepted token ends the text",
    more: ["tau", "alpha"],
    numbers: ({ totals }) => {
      if (totals.passes === null) return NOT_MEASURED; // pieces of text
      const accepted = sum(totals.accepted_by_position);
      const own = totals.tokens - accepted;
      // The draft tokens of rounds of which a watched server reported only the sums have no position.
      if (own > totals.passes) return `${counted(totals.passes, "round")}: ${counted(totals.tokens, "token")}`;
      const last = own < totals.passes ? "; an accepted token ended the run, so the last round has no target token" : "";
      return `${counted(totals.passes, "round")}: ${counted(accepted, "draft token")} + ${counted(own, "target token")} = ${totals.tokens}${last}`;
    },
  },
  theory: {
    title: "Theoretical speedup",
    sentence: "The expected speedup if each draft token is accepted independently with probability α (Leviathan et al. 2023).",
    formula: "S = (1 − α^(k+1)) ÷ (1 − α) ÷ (k·c + v(k+1))",
    more: ["alpha", "c", "v"],
    numbers: ({ totals, calibration }) => {
      if (totals.s_theory === null) return calibration ? NOTHING_COMPARED : NOT_MEASURED;
      const even = totals.break_even_alpha;
      const needed = even === null ? "no α breaks even" : `break-even α = ${share(even)}`;
      return `α = ${share(totals.alpha_compared)}, c = ${calibration.c.toFixed(2)}: ${speedWords(totals.s_theory)}; ${needed}`;
    },
  },
  rates: {
    title: "α and τ by round",
    sentence: "Acceptance rate and tokens per target pass, each over all rounds so far; later rounds change the values less.",
    formula: "α = accepted ÷ compared, τ = tokens ÷ target passes",
    more: ["alpha", "tau"],
    numbers: ({ totals }) => {
      if (totals.alpha_compared === null) return NOTHING_COMPARED;
      return `after ${counted(totals.passes, "round")} α = ${share(totals.alpha_compared)}, τ = ${totals.tau.toFixed(2)}`;
    },
  },
  race: {
    title: "The race",
    sentence: "The number of tokens written over decoding time; a steeper line means faster decoding.",
    formula: "slope = tokens per second",
    more: ["speedup"],
    numbers: ({ totals, config }) => {
      const own = `${counted(totals.tokens, "token")} in ${totals.seconds.toFixed(2)} s`;
      if (!config.baseline || totals.baseline_seconds === null) return own; // null before the lane's first round has ended
      return `${own}; the target alone ${totals.baseline_tokens} in ${totals.baseline_seconds.toFixed(2)} s`;
    },
  },
  time: {
    title: "Where time goes",
    sentence: "Decoding time in seconds, split into drafting, target passes, and the rest, such as choosing tokens and updating caches.",
    formula: "a round = k draft steps + one target pass + rest",
    more: ["c", "v"],
    numbers: ({ totals }) => {
      const part = (seconds) => share(seconds / totals.seconds);
      return `draft ${part(totals.draft_s)}, target ${part(totals.verify_s)}, rest ${part(totals.other_s)} of ${totals.seconds.toFixed(2)} s`;
    },
  },
  position: {
    title: "Acceptance by position",
    sentence: "The acceptance rate at each position of a draft; tokens after a rejected token do not count.",
    formula: "α at a position = accepted ÷ compared there",
    more: ["alpha"],
    numbers: ({ totals }) => {
      const { accepted_by_position: accepted, compared_by_position: compared } = totals;
      if (!compared[0]) return NOTHING_COMPARED;
      return compared.slice(0, POSITIONS_SHOWN).map((count, place) => `${place + 1}: ${accepted[place]} of ${count}`).join(", ");
    },
  },
  ranks: {
    title: "Rank of the target's choice",
    sentence: "For each rejected draft token, the draft model's rank of the target's choice; copied draft tokens have no rank.",
    formula: "rank = 1 + number of tokens with a higher q",
    more: ["alpha"],
    numbers: ({ totals }) => {
      const [accepted, compared] = [totals.accepted_by_position, totals.compared_by_position].map(sum);
      return compared ? `${compared - accepted} of ${compared} compared draft tokens rejected` : NOTHING_COMPARED;
    },
  },
  entropy: {
    title: "Acceptance by target entropy",
    sentence: "The acceptance rate by the target's entropy, which is 0 bits if the target is certain of its token.",
    formula: "entropy = −Σ p·log₂ p; at least, because all tokens below the top five count as one",
    more: ["alpha"],
    numbers: ({ totals }) => {
      const [accepted, compared] = [totals.accepted_by_position, totals.compared_by_position].map(sum);
      return compared ? `${accepted} of ${compared} compared draft tokens accepted` : NOTHING_COMPARED;
    },
  },
};

const POINTS = {
  race: (rounds, played) => racePoints(played),
  time: (rounds, played, totals) => timePoints(totals, BASELINE in played),
  speedup: (rounds, played, totals) => speedupPoints(rounds, totals),
  rates: (rounds) => ({ alpha: figurePoints(rounds, "alpha_compared"), tau: figurePoints(rounds, "tau") }),
  position: (rounds) => positionPoints(rounds.at(-1)?.totals),
  ranks: rankPoints,
  entropy: entropyPoints,
};

/**
 * The points of a chart. `played` maps each lane to its entries played so far (see `LaneTrace`); `totals`: the
 * current figures.
 */
export function pointsOf(name, { played, totals }) {
  return POINTS[name](played[SPECULATIVE] ?? [], played, totals);
}

/** The points of the speedup lines. The last point has the current figures, which may be newer than the last round. */
export function speedupPoints(entries, totals) {
  const line = (name) => {
    const points = figurePoints(entries, name);
    if (points.y && totals) points.y[points.y.length - 1] = totals[name];
    return points;
  };
  const speedup = line("speedup");
  const { x = [], y = [] } = speedup;
  return { speedup, theory: line("s_theory"), "speedup-lead": pointsAt(x.slice(-1), y.slice(-1)) };
}

function racePoints(played) {
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

/** The parts of two bars: the upper one is the speculative lane, the lower one the target alone. */
export function timePoints(totals, hasBaseline) {
  if (!totals) return {};
  const alone = hasBaseline ? secondsWords(totals.baseline_seconds ?? 0) : "not run"; // null before its first round has ended
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

/** One bar per rank of `targetRank`; no points if no round has a rank. */
export function rankPoints(entries) {
  const counts = rankCounts(entries);
  if (!sum(counts)) return {};
  const points = pointsAt(counts.map((_, index) => index + 1), counts);
  return { ranks: { ...points, text: counts.map((count) => (count ? String(count) : "")) } };
}

function rankCounts(entries) {
  const ranks = entries.map(({ round }) => targetRank(round));
  return Array.from({ length: BEYOND }, (_, index) => ranks.filter((rank) => rank === index + 1).length);
}

/** One bar per interval of `entropyAtLeast`; no points if no compared token has the target's most likely tokens. */
export function entropyPoints(entries) {
  const bars = Array.from({ length: ENTROPY_BARS }, () => ({ accepted: 0, compared: 0 }));
  for (const token of entries.flatMap(({ round }) => round.drafted)) {
    if (!token.compared || !token.target_top.length) continue;
    const bar = bars[Math.min(ENTROPY_BARS - 1, Math.floor(entropyAtLeast(token.target_top) / BITS_PER_BAR))];
    bar.compared += 1;
    if (token.status === "accepted") bar.accepted += 1;
  }
  if (!bars.some(({ compared }) => compared)) return {};
  const points = pointsAt(bars.map((_, index) => index + 1), bars.map(({ accepted, compared }) => (compared ? accepted / compared : null)));
  return { entropy: { ...points, text: bars.map(({ accepted, compared }) => (compared ? `${accepted} of ${compared}` : "")) } };
}

/** The entropy in bits of a distribution with this list of most likely tokens, if all other tokens were one. */
function entropyAtLeast(top) {
  const listed = top.map(([, probability]) => probability);
  const others = Math.max(0, 1 - sum(listed));
  return sum([...listed, others].map((p) => (p ? -p * Math.log2(p) : 0)));
}

/**
 * The point that a chart's axes include at all times: the end of the rounds that have arrived. So a replay does not
 * move the axes.
 */
export function axisReach(name, trace) {
  return REACHES[name](trace?.entries(SPECULATIVE) ?? [], trace);
}

const REACHES = {
  race: (rounds, trace) => reachOf(Object.keys(RACE_KEYS), trace),
  time: (rounds, trace) => ({ x: reachOf([SPECULATIVE, BASELINE], trace).x }),
  speedup: (rounds, trace) => ({ x: rounds.length + 0.5, y: highestSpeedup(trace?.end ? [...rounds, trace.end] : rounds) }),
  rates: (rounds) => ({ x: rounds.length + 0.5 }),
  position: (rounds) => ({ x: (rounds.at(-1)?.totals.compared_by_position.length ?? 0) + 0.5 }),
  ranks: (rounds) => ({ x: BEYOND + 0.5, y: Math.max(ROOM_RANKS, ...rankCounts(rounds)) }),
  entropy: () => ({ x: ENTROPY_BARS + 0.5 }),
};

/** The seconds and tokens at which the last of these lanes ends so far. */
function reachOf(lanes, trace) {
  const ends = lanes.map((lane) => RACE_KEYS[lane].map((key) => trace?.entries(lane).at(-1)?.totals[key] ?? 0));
  const step = trace?.start?.run.calibration?.step_s ?? 0;
  return { x: Math.max(ROOM_TOKENS * step, ...ends.map(([x]) => x)), y: Math.max(ROOM_TOKENS, ...ends.map(([, y]) => y)) };
}

function highestSpeedup(entries) {
  return entries.reduce((most, { totals }) => Math.max(most, totals.speedup ?? 0, totals.s_theory ?? 0), MIN_SPEEDUP);
}

export function sum(counts) {
  return counts.reduce((total, count) => total + count, 0);
}

function secondsWords(seconds) {
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

function roundNumbers(entries) {
  return entries.map(({ round }) => round.index + 1);
}

function figurePoints(entries, name) {
  return pointsAt(
    roundNumbers(entries),
    entries.map(({ totals }) => totals[name]),
  );
}

function pointsAt(x, y) {
  return x.length ? { x, y } : {};
}
