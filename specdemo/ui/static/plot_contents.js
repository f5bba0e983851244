// What the six charts show at a moment: Python's figures of the theme, laid out for their rooms and filled with
// what has been played. No DOM but the page's width of a finger, no drawing.

import { liveAxes } from "./plot_axes.js";
import {
  acceptancePoints,
  axisReach,
  BY_ROUND,
  positionPoints,
  racePoints,
  ratePoints,
  speedupPoints,
  timePoints,
} from "./plot_points.js";
import { fitToRoom, magnify } from "./plotly_setup.js";
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
