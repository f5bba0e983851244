// The figures of the six charts at a moment: Python's skeletons, fitted to their size and filled with the rounds
// played so far. No drawing.

import { acceptancePoints, axisReach, BY_ROUND, positionPoints, racePoints, ratePoints, speedupPoints, timePoints } from "./charts.js";
import { fitToRoom, magnify } from "./plotly_chart.js";
import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";

/** The charts that keep pace with a run, on axes of their own. */
export const LIVE = ["acceptance", "speedup"];
const DENSE_PX = { position: 90 }; // of a chart's width for each of its bars
const DESIGN = { live: { width: 500, height: 171 }, other: { width: 400, height: 330 } }; // sizes that Python's fonts are for
const LANES = [SPECULATIVE, BASELINE, DRAFT];
const WITH_ROUNDS = [...BY_ROUND, "position"];
const WITH_CLOCKS = ["race", "time"];
const LINE_ENDS = ["speedup", "s_theory"]; // figures at which the lines of the speedup end

export class PlotContents {
  /** `figures` by theme and name and `markLift` are the server's. */
  constructor(figures, markLift) {
    this.figures = figures;
    this.markLift = markLift;
    this.fitted = new Map(); // figures of the theme, laid out for their rooms and not filled
    this.axes = new Map(); // of the live charts, as `liveAxes` makes them; the same object as long as they stay
    this.run = 0;
    this.selected = null;
    this.begin(null);
  }

  /** A new run, of which nothing has been played. */
  begin(trace) {
    this.trace = trace;
    this.run += 1;
    this.state = {};
    this.totals = null;
    this.follow();
  }

  /** What has been played by now; returns the charts that show it. */
  take(state, totals) {
    const settled = (lane, at) => at[lane]?.settled ?? 0;
    const moved = LANES.filter((lane) => settled(lane, state) !== settled(lane, this.state));
    const ends = LINE_ENDS.some((name) => totals?.[name] !== this.totals?.[name]);
    this.state = state;
    this.totals = totals;
    return [
      ...(moved.includes(SPECULATIVE) ? WITH_ROUNDS : []),
      ...(moved.length ? WITH_CLOCKS : []),
      ...(ends ? ["speedup"] : []),
      ...this.follow(),
    ];
  }

  /** Mark this round (from 0), or none with null; returns the charts that show it. */
  select(index) {
    if (index === this.selected) return [];
    this.selected = index;
    return BY_ROUND;
  }

  /** Lay a chart out for a theme and a room (`width`, `height`); returns its layout, without anything played. */
  fit(name, theme, room) {
    const figure = structuredClone(this.figures[theme][name]);
    fitToRoom(figure.layout, figure.narrow, room);
    magnify(figure, DESIGN[LIVE.includes(name) ? "live" : "other"]);
    this.fitted.set(name, figure);
    if (LIVE.includes(name)) this.chooseAxes(name);
    return figure.layout;
  }

  /** Whether a chart has been laid out. */
  fits(name) {
    return this.fitted.has(name);
  }

  /** The figure of a chart at the moment: `data` and `layout` for Plotly. */
  figure(name) {
    const { data, layout, dense } = structuredClone(this.fitted.get(name));
    if (LIVE.includes(name)) setAxes(layout, this.axes.get(name));
    else this.makeRoom(name, { data, layout, dense });
    assignByUid(data, this.points(name));
    layout.uirevision = this.run;
    const band = this.band();
    const shape = layout.shapes?.find(isNamed("selected"));
    if (shape && band) Object.assign(shape, { visible: true, x0: band[0], x1: band[1] });
    const note = layout.annotations?.find(isNamed("no-baseline"));
    if (note) note.visible = this.lacksBaseline();
    return { data, layout };
  }

  /** What the layer of a live chart has to draw at the moment, on these axes. */
  scene(name, axes) {
    const note = this.fitted.get(name).layout.annotations?.find(isNamed("no-baseline"));
    return {
      axes,
      points: this.points(name),
      rounds: this.state[SPECULATIVE]?.settled ?? 0,
      band: this.band(),
      note: note && this.lacksBaseline() ? note.text : null,
    };
  }

  // Axes for what has arrived; returns the charts whose axes have changed.
  follow() {
    const arrived = this.trace && `${this.run} ${this.trace.arrived.length} ${this.trace.closed}`;
    if (arrived === this.arrived) return [];
    this.arrived = arrived;
    return LIVE.filter((name) => this.fits(name) && this.chooseAxes(name));
  }

  chooseAxes(name) {
    const { width, height, margin, font } = this.fitted.get(name).layout;
    const room = { width: width - margin.l - margin.r, height: height - margin.t - margin.b, em: font.size };
    const axes = liveAxes(name, this.trace, room);
    if (JSON.stringify(axes) === JSON.stringify(this.axes.get(name))) return false;
    this.axes.set(name, axes);
    return true;
  }

  makeRoom(name, { data, layout, dense }) {
    const reach = axisReach(name, this.trace);
    if (layout.width < (reach.x - 0.5) * DENSE_PX[name]) assignByUid(data, dense);
    const room = data.find(({ uid }) => uid === "room");
    room.x.push(reach.x);
    room.y.push(reach.y ?? room.y[0]);
  }

  points(name) {
    const played = {};
    for (const lane of this.trace?.lanes.keys() ?? []) {
      played[lane] = this.trace.entries(lane).slice(0, this.state[lane]?.settled ?? 0);
    }
    const rounds = played[SPECULATIVE] ?? [];
    if (name === "acceptance") return acceptancePoints(rounds, this.markLift, this.axes.get(name).bins);
    if (name === "rates") return ratePoints(rounds);
    if (name === "speedup") return speedupPoints(rounds, this.totals);
    if (name === "position") return positionPoints(rounds.at(-1)?.totals);
    if (name === "race") return racePoints(played);
    return timePoints(this.totals, BASELINE in played);
  }

  // From where to where the chosen round is marked, once it has been played.
  band() {
    if (this.selected === null || this.selected >= (this.state[SPECULATIVE]?.settled ?? 0)) return null;
    return [this.selected + 0.5, this.selected + 1.5];
  }

  lacksBaseline() {
    return Boolean(this.trace?.start) && !this.trace.lanes.has(BASELINE);
  }
}

function isNamed(wanted) {
  return ({ name }) => name === wanted;
}

function setAxes({ xaxis, yaxis }, { x, y, bins }) {
  Object.assign(xaxis, { range: [...x.range], tick0: 0, dtick: x.dtick });
  Object.assign(yaxis, { range: [...y.range], tick0: 0, dtick: y.dtick });
  xaxis.title.text = x.title;
  if (bins.bin > 1) xaxis.unifiedhovertitle.text = "around round %{x}";
}

function assignByUid(data, parts) {
  for (const trace of data) Object.assign(trace, parts[trace.uid]);
}

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
