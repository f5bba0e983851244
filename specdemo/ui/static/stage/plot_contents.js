// The contents of the charts at a moment: Python's skeletons, fitted to the size of the chart and filled with the
// rounds played so far. This module draws nothing.

import { axisReach, BY_ROUND, CHANGED_BY_LANES, CHANGED_BY_ROUND, LIVE, pointsOf } from "./charts.js";
import { fitToRoom, magnify } from "../common/plotly_chart.js";
import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";

// The width below which a wide font has no room for the title and the legend of the live chart in one row.
const LEGEND_ROW_PX = 620;
const DENSE_PX = { position: 90 }; // the minimum chart width per bar at which bars have labels
// The chart sizes for which Python chose its font sizes.
const DESIGN = { live: { width: 500, height: 171 }, other: { width: 400, height: 330 } };
const LANES = [SPECULATIVE, BASELINE, DRAFT];
const LINE_ENDS = ["speedup", "s_theory"]; // the figures at the ends of the speedup's lines
const REACHES = [1, 1.5, 2, 3, 4, 6, 8, 10]; // the lengths of an axis while a run goes on, in each decade
const EDGE = 0.5; // a round takes up half a unit of the x axis on either side
const HEADROOM = 1.04; // a factor for the axes, so that the end of a line is not cut
const LABEL_EM = { x: 3.2, y: 1.3 }; // the minimum length of an axis per label, in units of the letter height
const STEPS = [-2, -1, 0, 1, 2, 3].flatMap((power) => [1, 2, 5].map((step) => Number(`${step}e${power}`)));

export class PlotContents {
  /** `figures` has the skeletons by theme and name; the server sends it. */
  constructor(figures) {
    this.figures = figures;
    this.fitted = new Map(); // the skeletons in the current theme and size, not filled yet
    this.axes = null; // the axes of the live chart, from `raceAxes`; the same object until they change
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
    fitToRoom(figure.layout, figure.narrow, room, name === LIVE ? LEGEND_ROW_PX : undefined);
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

  /** The current contents of the live chart, which its `ChartCanvas` draws on `axes`. */
  scene(axes) {
    const data = this.fitted.get(LIVE).data.map((trace) => ({ ...trace }));
    assignByUid(data, this.points(LIVE));
    return { axes, data, rounds: this.state[SPECULATIVE]?.settled ?? 0 };
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
    const axes = raceAxes(this.trace, room);
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
 * The axes of the race for all rounds that have arrived: `x` and `y`, each with a `range` and the distance of labels,
 * `dtick`. `room` is the `width`, `height` and letter height `em` of the plot, in pixels. Plotly and the layer draw on
 * the same axes.
 */
export function raceAxes(trace, room) {
  const { x, y } = axisReach(LIVE, trace);
  const [seconds, tokens] = trace?.closed && x > 0 ? [x * HEADROOM, y * HEADROOM] : [reachOf(x), reachOf(y)];
  return {
    x: { range: [0, seconds], dtick: stepFor(seconds, room.width / (LABEL_EM.x * room.em)) },
    y: { range: [0, tokens], dtick: stepFor(tokens, room.height / (LABEL_EM.y * room.em)) },
  };
}

/** All multiples of `dtick` in the range of an axis. */
export function ticksOf({ range: [from, to], dtick }) {
  const ticks = [];
  for (let i = Math.ceil(from / dtick); i * dtick <= to; i += 1) ticks.push(i * dtick);
  return ticks;
}

function reachOf(value) {
  const decade = 10 ** Math.floor(Math.log10(value || 1));
  return decade * REACHES.find((reach) => decade * reach >= (value || 1));
}

function stepFor(length, maxLabels) {
  return STEPS.find((step) => length / step <= maxLabels) ?? STEPS.at(-1);
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
