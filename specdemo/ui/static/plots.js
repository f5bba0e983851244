// The six charts: Python's skeletons filled with what has been played so far, on chart nodes that stay.
// Only charts in sight are drawn.

import { PlotPacer } from "./plot_pacer.js";
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
import { fitToRoom, loadPlotly, pageTheme, PLOTLY_CONFIG } from "./plotly_setup.js";
import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";

const NEAR = "400px";
const IN_SIGHT = 0.2; // a chart of which less is seen need not follow the run
const TAP_MS = 400;
const DENSE_PX = { acceptance: 5, position: 90 }; // of a chart's width for each of its bars
const LANES = [SPECULATIVE, BASELINE, DRAFT];
const WITH_ROUNDS = [...BY_ROUND, "position"];
const WITH_CLOCKS = ["race", "time"];

/**
 * The charts of a page: the `[data-plot]` nodes under `root`. `onSelect(index)` is called with the round that
 * was clicked. `figures` and `markLift` come from the server.
 */
export class Plots {
  constructor(root, { base, figures, markLift }, onSelect) {
    const nodes = [...root.querySelectorAll("[data-plot]")];
    this.nodes = new Map(nodes.map((node) => [node.dataset.plot, node]));
    this.base = base;
    this.figures = figures;
    this.markLift = markLift;
    this.onSelect = onSelect;
    this.theme = pageTheme();
    this.stale = new Set();
    this.inSight = new Set();
    this.touched = new Set(); // charts of which any part is seen: drawn once, so that none stands empty
    this.sizes = new Map();
    this.run = 0;
    this.selected = null;
    this.clickedAt = -TAP_MS;
    this.pacer = new PlotPacer({ due: () => this.due(), draw: (name) => this.draw(name) });
    this.setTrace(null);
    this.observe();
  }

  /** A new run begins: empty charts, default zoom. */
  setTrace(trace) {
    this.trace = trace;
    this.run += 1;
    this.state = {};
    this.totals = null;
    this.outdate(this.nodes.keys());
  }

  /** What has been played by now: `Trace.stateAt` and `Trace.totalsAt` of the moment. */
  show(state, totals) {
    const settled = (lane, at) => at[lane]?.settled ?? 0;
    const moved = LANES.filter((lane) => settled(lane, state) !== settled(lane, this.state));
    this.state = state;
    this.totals = totals;
    if (moved.includes(SPECULATIVE)) this.outdate(WITH_ROUNDS);
    if (moved.length) this.outdate(WITH_CLOCKS);
  }

  /** Mark this round (from 0) in the charts that have one place a round; null: none. */
  select(index) {
    if (index === this.selected) return;
    this.selected = index;
    this.outdate(BY_ROUND);
  }

  outdate(names) {
    for (const name of names) this.stale.add(name);
    this.pacer.wake();
  }

  due() {
    if (!this.plotly || document.hidden) return [];
    const seen = (name) => this.inSight.has(name) || (this.touched.has(name) && !this.isDrawn(name));
    return [...this.stale].filter((name) => seen(name) && this.sizes.has(name));
  }

  observe() {
    const sight = new IntersectionObserver((changes) => this.look(changes), { threshold: [0, IN_SIGHT] });
    const near = new IntersectionObserver(
      (changes) => {
        if (!changes.some(({ isIntersecting }) => isIntersecting)) return;
        near.disconnect();
        this.load();
      },
      { rootMargin: NEAR },
    );
    // Plotly itself would only follow the window, not a page that lays its charts out in other columns.
    const size = new ResizeObserver((changes) => {
      const seen = changes.filter(({ contentRect }) => contentRect.width);
      for (const { target, contentRect } of seen) this.sizes.set(target.dataset.plot, contentRect);
      this.outdate(seen.map(({ target }) => target.dataset.plot));
    });
    for (const node of this.nodes.values()) for (const observer of [sight, near, size]) observer.observe(node);
    new MutationObserver(() => this.followTheme()).observe(document.body, { attributeFilter: ["class"] });
    document.addEventListener("visibilitychange", () => this.pacer.wake());
  }

  look(changes) {
    for (const { target, isIntersecting, intersectionRatio } of changes) {
      const name = target.dataset.plot;
      this.touched[isIntersecting ? "add" : "delete"](name);
      this.inSight[intersectionRatio >= IN_SIGHT ? "add" : "delete"](name);
    }
    this.pacer.wake();
  }

  load() {
    loadPlotly(this.base).then(
      (plotly) => {
        this.plotly = plotly;
        this.pacer.wake();
      },
      () => {
        for (const node of this.nodes.values()) node.textContent = "The charts could not be loaded.";
      },
    );
  }

  followTheme() {
    if (this.theme === pageTheme()) return;
    this.theme = pageTheme();
    this.outdate(this.nodes.keys());
  }

  async draw(name) {
    this.stale.delete(name);
    const node = this.nodes.get(name);
    const again = this.isDrawn(name);
    const { data, layout } = this.figure(name);
    await this.plotly.react(node, data, layout, PLOTLY_CONFIG);
    if (!again && BY_ROUND.includes(name)) {
      node.on("plotly_click", ({ points }) => this.click(points[0].x - 1));
    }
    return again;
  }

  isDrawn(name) {
    return this.nodes.get(name).classList.contains("js-plotly-plot");
  }

  // A tap arrives twice, as touch and as mouse; a double click is for the zoom.
  click(index) {
    const first = performance.now() - this.clickedAt > TAP_MS;
    this.clickedAt = performance.now();
    if (first) this.onSelect(index);
  }

  figure(name) {
    const { data, layout, narrow, dense } = structuredClone(this.figures[this.theme][name]);
    const reach = axisReach(name, this.trace);
    const bars = reach.x - 0.5;
    const { width, height } = this.sizes.get(name);
    if (width < bars * DENSE_PX[name]) assignByUid(data, dense);
    assignByUid(data, this.points(name));
    const room = data.find(({ uid }) => uid === "room");
    room.x.push(reach.x);
    room.y.push(reach.y ?? room.y[0]);
    layout.uirevision = this.run;
    fitToRoom(layout, narrow, { width, height });
    for (const shape of layout.shapes ?? []) if (shape.name === "selected") this.place(shape);
    for (const note of layout.annotations ?? []) {
      if (note.name === "no-baseline") note.visible = Boolean(this.trace?.start) && !this.trace.lanes.has(BASELINE);
    }
    return { data, layout };
  }

  points(name) {
    const played = {};
    for (const lane of this.trace?.lanes.keys() ?? []) {
      played[lane] = this.trace.entries(lane).slice(0, this.state[lane]?.settled ?? 0);
    }
    const rounds = played[SPECULATIVE] ?? [];
    if (name === "acceptance") return acceptancePoints(rounds, this.markLift);
    if (name === "rates") return ratePoints(rounds);
    if (name === "speedup") return speedupPoints(rounds);
    if (name === "position") return positionPoints(rounds.at(-1)?.totals);
    if (name === "race") return racePoints(played);
    return timePoints(this.totals, BASELINE in played);
  }

  place(band) {
    if (this.selected === null || this.selected >= (this.state[SPECULATIVE]?.settled ?? 0)) return;
    Object.assign(band, { visible: true, x0: this.selected + 0.5, x1: this.selected + 1.5 });
  }
}

function assignByUid(data, parts) {
  for (const trace of data) Object.assign(trace, parts[trace.uid]);
}
