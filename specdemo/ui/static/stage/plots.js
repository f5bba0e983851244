// The charts on the page, and the choice of the times at which each is drawn. Only charts in sight are drawn. The
// race follows the run on a canvas layer; Plotly draws it when nothing has changed for a while.

import { BY_ROUND, LIVE } from "./charts.js";
import { ChartCanvas } from "./chart_canvas.js";
import { PlotContents } from "./plot_contents.js";
import { sharesProcessor } from "./player.js";
import { drawFigure, loadPlotly, pageTheme } from "../common/plotly_chart.js";

const NEAR = "400px";
const IN_SIGHT = 0.2; // a chart does not follow the run if a smaller share of it is visible
const TAP_MS = 400;
const REST_MS = 250; // the minimum time between two drawings by Plotly
// A drawing that took the time t is followed by a rest of 12 t, because the models may need the processor.
const REST_FACTOR = 12;
const MAX_REST_MS = 3000;
// The time without a change after which Plotly draws what the layer shows. It is longer while a run plays, because more
// changes follow soon.
const QUIET_MS = 300;
const QUIET_PLAYING_MS = 1000;

export class Plots {
  /** Draws into the `[data-plot]` nodes under `root`. `onSelect(index)` is called with the index of a clicked round. */
  constructor(root, { base, figures }, onSelect) {
    const nodes = [...root.querySelectorAll("[data-plot]")];
    this.root = root;
    this.nodes = new Map(nodes.map((node) => [node.dataset.plot, node]));
    this.base = base;
    this.contents = new PlotContents(figures);
    this.onSelect = onSelect;
    this.theme = pageTheme();
    this.stale = new Set();
    this.changedAt = new Map();
    this.inSight = new Set();
    this.touched = new Set(); // charts that are visible at least in part
    this.isIdle = false; // true once the browser has had time: then all charts are drawn once, so that none is empty
    this.sizes = new Map();
    this.drawnOf = new Map(); // maps each chart to the run that Plotly has drawn
    this.zoomable = null; // the axes of the live chart that Plotly has drawn; a visitor may have zoomed them
    this.layer = new ChartCanvas(this.nodes.get(LIVE), () => this.scene());
    this.isDrawing = false;
    this.drawnAt = -REST_MS;
    this.restedAt = 0;
    this.clickedAt = -TAP_MS;
    this.setTrace(null);
    this.observe();
  }

  /** Begin with a new run: the charts become empty, and their zoom is reset. */
  setTrace(trace) {
    this.contents.begin(trace);
    // Plotly would keep the tooltip of the earlier run until the pointer moves, which a finger never does.
    for (const [name, node] of this.nodes) if (this.isDrawn(name)) this.plotly.Fx.unhover(node);
    this.outdate([...this.nodes.keys()]);
  }

  /** Show what has been played; the arguments are `Trace.stateAt` and `Trace.totalsAt` of the moment. */
  show(state, totals) {
    this.outdate(this.contents.take(state, totals));
  }

  /** Mark the round with this index (from 0) in the charts that have rounds along the x axis; null marks none. */
  select(index) {
    this.outdate(this.contents.select(index));
  }

  outdate(names) {
    if (!names.length) return;
    for (const name of names) {
      this.stale.add(name);
      this.changedAt.set(name, performance.now());
      if (name === LIVE) this.layer.request();
    }
    this.plan();
  }

  /** Call when models start or stop. While they use this processor, Plotly's drawings of an earlier run are hidden. */
  wake() {
    if (!sharesProcessor()) return this.plan();
    for (const [name, node] of this.nodes) {
      node.toggleAttribute("data-old", this.isDrawn(name) && this.drawnOf.get(name) !== this.contents.trace);
    }
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
    // Needed because Plotly notices a new size of the window, but not a new number of columns on the page.
    const size = new ResizeObserver((changes) => {
      const seen = changes.filter(({ contentRect }) => contentRect.width);
      for (const { target, contentRect } of seen) this.sizes.set(target.dataset.plot, contentRect);
      this.refit(seen.map(({ target }) => target.dataset.plot));
    });
    for (const node of this.nodes.values()) for (const observer of [sight, near, size]) observer.observe(node);
    new MutationObserver(() => this.followTheme()).observe(document.body, { attributeFilter: ["class"] });
    document.addEventListener("visibilitychange", () => this.plan());
  }

  look(changes) {
    for (const { target, isIntersecting, intersectionRatio } of changes) {
      const name = target.dataset.plot;
      this.touched[isIntersecting ? "add" : "delete"](name);
      this.inSight[intersectionRatio >= IN_SIGHT ? "add" : "delete"](name);
      if (name === LIVE && this.stale.has(name)) this.layer.request();
    }
    this.plan();
  }

  async load() {
    try {
      this.plotly = await loadPlotly(this.base);
      this.plan();
      (window.requestIdleCallback ?? setTimeout)(() => {
        this.isIdle = true;
        this.plan();
      });
    } catch {
      for (const [name, node] of this.nodes) if (name !== LIVE) node.textContent = "The charts did not load. Reload the page.";
    }
  }

  followTheme() {
    if (this.theme === pageTheme()) return;
    this.theme = pageTheme();
    this.refit([...this.sizes.keys()]);
  }

  // Fits charts to another size or theme. Part of a chart may be hidden until it is redrawn.
  refit(names) {
    for (const name of names) {
      const layout = this.contents.fit(name, this.theme, this.sizes.get(name));
      if (name === LIVE) this.layer.dress(layout);
    }
    this.restedAt = Math.min(this.restedAt, this.drawnAt + REST_MS);
    this.outdate(names);
  }

  due() {
    if (!this.plotly || document.hidden || sharesProcessor()) return [];
    const seen = (name) => this.inSight.has(name) || (!this.isDrawn(name) && (this.isIdle || this.touched.has(name)));
    return [...this.stale].filter((name) => seen(name) && this.sizes.has(name));
  }

  /** The earliest time at which Plotly may draw a chart; 0 if it has no layer or has changed its size or theme. */
  notBefore(name) {
    if (name !== LIVE || this.layer.isAlone) return 0;
    return this.changedAt.get(name) + (this.root.hasAttribute("data-running") ? QUIET_PLAYING_MS : QUIET_MS);
  }

  plan() {
    const names = this.isDrawing ? [] : this.due();
    if (!names.length) return;
    clearTimeout(this.timer);
    const from = Math.max(this.restedAt, Math.min(...names.map((name) => this.notBefore(name))));
    this.timer = setTimeout(() => this.drawDue(), Math.max(0, from - performance.now()));
  }

  // Draws one chart per task, then rests. The first drawing of a chart does not count for the rest: it takes much
  // longer, but happens only once.
  async drawDue() {
    this.isDrawing = true;
    const ready = this.due().filter((name) => this.notBefore(name) <= performance.now());
    let took = 0;
    try {
      for (const name of ready) {
        const isRedrawn = this.isDrawn(name);
        const from = performance.now();
        await this.draw(name);
        if (isRedrawn) took += performance.now() - from;
        await new Promise((resolve) => setTimeout(resolve));
      }
    } finally {
      if (ready.length) this.drawnAt = performance.now();
      this.restedAt = this.drawnAt + Math.min(MAX_REST_MS, Math.max(REST_MS, REST_FACTOR * took));
      this.isDrawing = false;
      this.plan();
    }
  }

  async draw(name) {
    this.stale.delete(name);
    const node = this.nodes.get(name);
    const isNew = !this.isDrawn(name);
    const figure = this.contents.figure(name);
    if (name === LIVE) this.zoomable = this.contents.axes;
    this.drawnOf.set(name, this.contents.trace);
    await drawFigure(this.plotly, node, figure);
    node.removeAttribute("data-old");
    if (name === LIVE) this.layer.settle(!this.stale.has(name));
    if (isNew && BY_ROUND.includes(name)) {
      node.on("plotly_click", ({ points }) => this.click(points[0].x - 1));
    }
  }

  /** The address of a picture of a chart in another size. */
  async pictureOf(name, size) {
    this.plotly ??= await loadPlotly(this.base);
    const { data, layout } = this.contents.figure(name);
    return this.plotly.toImage({ data, layout }, { format: "png", scale: 2, ...size });
  }

  isDrawn(name) {
    return this.nodes.get(name).classList.contains("js-plotly-plot");
  }

  // Selects a round once for two quick clicks: a tap arrives both as touch and as mouse, and a double click resets
  // the zoom.
  click(index) {
    const isFirst = performance.now() - this.clickedAt > TAP_MS;
    this.clickedAt = performance.now();
    if (isFirst) this.onSelect(index);
  }

  // Returns what the layer draws, or null while its chart is out of sight. A visitor's zoom is kept until the axes
  // change.
  scene() {
    if (!this.touched.has(LIVE)) return null;
    const { axes } = this.contents;
    if (this.zoomable !== axes) return this.contents.scene(axes);
    const { xaxis, yaxis } = this.nodes.get(LIVE).layout;
    return this.contents.scene({ x: { ...axes.x, range: xaxis.range }, y: { ...axes.y, range: yaxis.range } });
  }
}
