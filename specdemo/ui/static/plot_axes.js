// The axes of the two charts that keep pace with a run. They are chosen before anything is drawn, so that Plotly
// and the layer over it agree, and grow in steps while rounds arrive. No DOM, no Plotly.

import { SPECULATIVE } from "./trace.js";

/** More rounds than this share bars. */
export const MOST_BARS = 50;
const FIRST_REACHES = [12, 24, MOST_BARS]; // in rounds, of a run that goes on
const EDGE = 0.5; // a round's place reaches half a round to either side
const LEAST_DRAFT = 4;
const MARK_ROOM = 0.9; // tokens above the highest bar, for the mark of the target's own token
const LEAST_SPEEDUP = 1.5;
const SPEEDUP_STEP = 0.5;
const HEADROOM = 1.04; // so that a line's highest point is not cut
const MARK_PITCH = 9; // pixels from round to round below which marks would hide each other
const LABEL_EM = { x: 3.2, y: 1.3 }; // of an axis for each of its labels
const STEPS = [0.5, ...[1, 10, 100, 1000].flatMap((power) => [1, 2, 5].map((step) => step * power))];

/**
 * The axes of "acceptance" or "speedup" over all that has arrived of a run: `x` and `y` with their `range` and
 * the distance `dtick` of their labels, the title of `x`, and `bins`: how many rounds share a bar (`bin`), the
 * `last` round of the axis, and whether rounds are `marked`. `room`: `width`, `height` and `em` of the plot, in pixels.
 */
export function liveAxes(name, trace, room) {
  const entries = trace?.entries(SPECULATIVE) ?? [];
  const ended = Boolean(trace?.closed && entries.length);
  const last = ended ? entries.length : reachOf(entries.length);
  const bin = name === "acceptance" ? Math.ceil(last / MOST_BARS) : 1;
  const marked = bin === 1 && room.width / last >= MARK_PITCH;
  const top = name === "acceptance" ? topOfDrafts(entries, ended, marked) : topOfSpeedup(entries, trace?.end);
  return {
    x: {
      range: [EDGE, last + EDGE],
      dtick: stepFor(last, room.width / (LABEL_EM.x * room.em), 1),
      title: bin > 1 ? `round (a bar is the mean of ${bin})` : "round",
    },
    y: {
      range: [0, top],
      dtick: stepFor(top, room.height / (LABEL_EM.y * room.em), name === "acceptance" ? 1 : SPEEDUP_STEP),
    },
    bins: { bin, last, marked },
  };
}

/** Every multiple of the axis' step in its range. */
export function ticksOf({ range: [from, to], dtick }) {
  const ticks = [];
  for (let i = Math.ceil(from / dtick); i * dtick <= to; i += 1) ticks.push(i * dtick);
  return ticks;
}

function reachOf(count) {
  return FIRST_REACHES.find((reach) => reach >= count) ?? Math.ceil(count / MOST_BARS) * MOST_BARS;
}

function topOfDrafts(entries, ended, marked) {
  const longest = entries.reduce((most, { round }) => Math.max(most, round.drafted.length), 0);
  const top = ended ? Math.max(1, longest) : Math.max(LEAST_DRAFT, 2 * Math.ceil(longest / 2));
  return top + (marked ? MARK_ROOM : 0);
}

function topOfSpeedup(entries, end) {
  const all = end ? [...entries, end] : entries;
  const highest = all.reduce((most, { totals }) => Math.max(most, totals.speedup ?? 0, totals.s_theory ?? 0), 0);
  return Math.max(LEAST_SPEEDUP, SPEEDUP_STEP * Math.ceil((highest * HEADROOM) / SPEEDUP_STEP));
}

function stepFor(length, most, least) {
  return STEPS.find((step) => step >= least && length / step <= most) ?? STEPS.at(-1);
}
