// The contents of the charts at a moment: Python's skeletons, fitted to the size of the chart and filled with the
// rounds played so far. This module draws nothing.

import { axisReach, BY_ROUND, CHANGED_BY_LANES, CHANGED_BY_ROUND, LIVE, pointsOf } from "./charts.js";
import { fitToRoom, magnify } from "./plotly_chart.js";
import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";

const DENSE_PX = { position: 90 }; // the minimum chart width per bar at which bars have labels
// The chart sizes for which Python chose its font sizes.
const DESIGN = { live: { width: 500, height: 171 }, other: { width: 400, height: 330 } };
const LANES = [SPECULATIVE, BASELINE, DRAFT];
const LINE_ENDS = ["speedup", "s_theory"]; // the figures at the ends of the speedup's lines
// The lengths of the x axis in rounds while a run goes on: the first two, then multiples of the step.
const FIRST_REACHES = [12, 24];
const REACH_STEP = 50;
const EDGE = 0.5; // a round takes up half a unit of the x axis on either side
const MIN_SPEEDUP = 1.5;
const SPEEDUP_STEP = 0.5;
const HEADROOM = 1.04; // a factor for the y axis, so that the highest point of a line is not cut
const LABEL_EM = { x: 3.2, y: 1.3 }; // the minimum length of an axis per label, in units of the letter height
const STEPS = [0.5, ...[1, 10, 100, 1000].flatMap((power) => [1, 2, 5].map((step) => step * power))];

export class PlotContents {
  /** `figures` has the skeletons by theme and name; the server sends it. */
  constructor(figures) {
    this.figures = figures;
    this.fitted = new Map(); // the skeletons in the current theme and size, not filled yet
    this.axes = null; // the axes of the live chart, from `speedupAxes`; the same object until they change
    this.run = 0;
    this.selected = null;
    this.begin(null);
  }

  /** Begin with a new run, of which nothing has been played. */
  begin(trace) {
    this.trace = trace;
    this.run += 1;
    this.state = {};
    this.totals = null;
    this.follow();
  }

  /** Take the state of what has been played so far; returns the names of the charts that change. */
  take(state, totals) {
    const settled = (lane, at) => at[lane]?.settled ?? 0;
    const moved = LANES.filter((lane) => settled(lane, state) !== settled(lane, this.state));
    const ends = LINE_ENDS.some((name) => totals?.[name] !== this.totals?.[name]);
    this.state = state;
    this.totals = totals;
    return [
      ...(moved.includes(SPECULATIVE) ? CHANGED_BY_ROUND : []),
      ...(moved.length ? CHANGED_BY_LANES : []),
      ...(ends ? ["speedup"] : []),
      ...this.follow(),
    ];
  }

  /** Mark the round with this index (from 0), or none if it is null; returns the names of the charts that change. */
  select(index) {
    if (index === this.selected) return [];
    this.selected = index;
    return BY_ROUND;
  }

  /** Fit a chart to a theme and a size; returns its layout. */
  fit(name, theme, room) {
    const figure = structuredClone(this.figures[theme][name]);
    fitToRoom(figure.layout, figure.narrow, room);
    magnify(figure, DESIGN[name === LIVE ? "live" : "other"]);
    this.fitted.set(name, figure);
    if (name === LIVE) this.chooseAxes();
    return figure.layout;
  }

  /** The current figure of a chart for Plotly, as `{ data, layout }`. */
  figure(name) {
    const { data, layout, dense } = structuredClone(this.fitted.get(name));
    if (name === LIVE) setAxes(layout, this.axes);
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

  /** The current contents of the live chart, which its `LiveLayer` draws on `axes`. */
  scene(axes) {
    const { text } = this.fitted.get(LIVE).layout.annotations.find(isNamed("no-baseline"));
    return {
      axes,
      points: this.points(LIVE),
      rounds: this.state[SPECULATIVE]?.settled ?? 0,
      band: this.band(),
      note: this.lacksBaseline() ? text : null,
    };
  }

  // Fits the axes of the live chart to the rounds that have arrived; returns its name if they have changed.
  follow() {
    const arrived = this.trace && `${this.run} ${this.trace.arrived.length} ${this.trace.closed}`;
    if (arrived === this.arrived) return [];
    this.arrived = arrived;
    return this.fitted.has(LIVE) && this.chooseAxes() ? [LIVE] : [];
  }

  chooseAxes() {
    const { width, height, margin, font } = this.fitted.get(LIVE).layout;
    const room = { width: width - margin.l - margin.r, height: height - margin.t - margin.b, em: font.size };
    const axes = speedupAxes(this.trace, room);
    if (JSON.stringify(axes) === JSON.stringify(this.axes)) return false;
    this.axes = axes;
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
    return pointsOf(name, { played, totals: this.totals });
  }

  // The x range that marks the selected round, if that has been played.
  band() {
    if (this.selected === null || this.selected >= (this.state[SPECULATIVE]?.settled ?? 0)) return null;
    return [this.selected + EDGE, this.selected + 1 + EDGE];
  }

  lacksBaseline() {
    return Boolean(this.trace?.start) && !this.trace.lanes.has(BASELINE);
  }
}

/**
 * The axes of "speedup" for all rounds that have arrived: `x` and `y`, each with a `range` and the distance of labels,
 * `dtick`. `room` is the `width`, `height` and letter height `em` of the plot, in pixels. Plotly and the layer draw on
 * the same axes.
 */
export function speedupAxes(trace, room) {
  const entries = trace?.entries(SPECULATIVE) ?? [];
  const last = trace?.closed && entries.length ? entries.length : reachOf(entries.length);
  const top = topOfSpeedup(entries, trace?.end);
  return {
    x: { range: [EDGE, last + EDGE], dtick: stepFor(last, room.width / (LABEL_EM.x * room.em), 1) },
    y: { range: [0, top], dtick: stepFor(top, room.height / (LABEL_EM.y * room.em), SPEEDUP_STEP) },
  };
}

/** All multiples of `dtick` in the range of an axis. */
export function ticksOf({ range: [from, to], dtick }) {
  const ticks = [];
  for (let i = Math.ceil(from / dtick); i * dtick <= to; i += 1) ticks.push(i * dtick);
  return ticks;
}

function reachOf(count) {
  return FIRST_REACHES.find((reach) => reach >= count) ?? Math.ceil(count / REACH_STEP) * REACH_STEP;
}

function topOfSpeedup(entries, end) {
  const all = end ? [...entries, end] : entries;
  const highest = all.reduce((most, { totals }) => Math.max(most, totals.speedup ?? 0, totals.s_theory ?? 0), 0);
  return Math.max(MIN_SPEEDUP, SPEEDUP_STEP * Math.ceil((highest * HEADROOM) / SPEEDUP_STEP));
}

function stepFor(length, maxLabels, minStep) {
  return STEPS.find((step) => step >= minStep && length / step <= maxLabels) ?? STEPS.at(-1);
}

function isNamed(wanted) {
  return ({ name }) => name === wanted;
}

function setAxes({ xaxis, yaxis }, { x, y }) {
  Object.assign(xaxis, { range: [...x.range], tick0: 0, dtick: x.dtick });
  Object.assign(yaxis, { range: [...y.range], tick0: 0, dtick: y.dtick });
}

function assignByUid(data, parts) {
  for (const trace of data) Object.assign(trace, parts[trace.uid]);
}
