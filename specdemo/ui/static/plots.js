// The six charts on the page and when each is drawn. Only charts in sight are drawn.

import { BY_ROUND } from "./charts.js";
import { LiveLayer } from "./live_layer.js";
import { sharesProcessor } from "./player.js";
import { LIVE, PlotContents } from "./plot_contents.js";
import { drawFigure, loadPlotly, pageTheme } from "./plotly_chart.js";

const NEAR = "400px";
const IN_SIGHT = 0.2; // a chart of which less is seen need not follow the run
const TAP_MS = 400;

/**
 * The charts of a page: the `[data-plot]` nodes under `root`. `onSelect(index)` is called with the round that
 * was clicked. `figures` and `markLift` come from the server.
 */
export class Plots {
  constructor(root, { base, figures, markLift }, onSelect) {
    const nodes = [...root.querySelectorAll("[data-plot]")];
    this.nodes = new Map(nodes.map((node) => [node.dataset.plot, node]));
    this.base = base;
    this.contents = new PlotContents(figures, markLift);
    this.onSelect = onSelect;
    this.theme = pageTheme();
    this.stale = new Set();
    this.inSight = new Set();
    this.touched = new Set(); // charts of which any part is seen: drawn once, so that none stands empty
    this.sizes = new Map();
    this.drawnOf = new Map(); // the run whose picture Plotly has drawn
    this.zoomable = new Map(); // the axes Plotly has drawn, which a visitor may have zoomed since
    this.clickedAt = -TAP_MS;
    const isPlaying = () => root.hasAttribute("data-running");
    this.live = new LiveCharts(this.nodes, (name) => this.scene(name), isPlaying);
    this.pacer = new PlotPacer({
      due: () => this.due(),
      draw: (name) => this.draw(name),
      notBefore: (name) => this.live.notBefore(name),
    });
    this.setTrace(null);
    this.observe();
  }

  /** A new run begins: empty charts, default zoom. */
  setTrace(trace) {
    this.contents.begin(trace);
    this.outdate([...this.nodes.keys()]);
  }

  /** What has been played by now: `Trace.stateAt` and `Trace.totalsAt` of the moment. */
  show(state, totals) {
    this.outdate(this.contents.take(state, totals));
  }

  /** Mark this round (from 0) in the charts that have one place a round; null: none. */
  select(index) {
    this.outdate(this.contents.select(index));
  }

  outdate(names) {
    if (!names.length) return;
    for (const name of names) {
      this.stale.add(name);
      this.live.change(name, this.pacer.clock.now());
    }
    this.pacer.wake();
  }

  /** Plotly may draw again what it has not drawn; while it may not, what it drew of an earlier run is not shown. */
  wake() {
    if (!sharesProcessor()) return this.pacer.wake();
    for (const [name, node] of this.nodes) {
      node.toggleAttribute("data-old", this.isDrawn(name) && this.drawnOf.get(name) !== this.contents.trace);
    }
  }

  due() {
    if (!this.plotly || document.hidden || sharesProcessor()) return [];
    const seen = (name) => this.inSight.has(name) || (this.touched.has(name) && !this.isDrawn(name));
    return [...this.stale].filter((name) => seen(name) && this.contents.fits(name));
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
      this.refit(seen.map(({ target }) => target.dataset.plot));
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
      if (this.stale.has(name)) this.live.look(name);
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
        const empty = [...this.nodes].filter(([name]) => !LIVE.includes(name));
        for (const [, node] of empty) node.textContent = "The charts could not be loaded.";
      },
    );
  }

  followTheme() {
    if (this.theme === pageTheme()) return;
    this.theme = pageTheme();
    this.refit([...this.sizes.keys()]);
  }

  // Another room or theme.
  refit(names) {
    for (const name of names) this.live.dress(name, this.contents.fit(name, this.theme, this.sizes.get(name)));
    this.outdate(names);
    this.pacer.hurry();
  }

  async draw(name) {
    this.stale.delete(name);
    const node = this.nodes.get(name);
    const again = this.isDrawn(name);
    const figure = this.contents.figure(name);
    this.zoomable.set(name, this.contents.axes.get(name));
    this.drawnOf.set(name, this.contents.trace);
    await drawFigure(this.plotly, node, figure);
    node.removeAttribute("data-old");
    this.live.settle(name, !this.stale.has(name));
    if (!again && BY_ROUND.includes(name)) {
      node.on("plotly_click", ({ points }) => this.click(Math.floor(points[0].x) - 1));
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

  // What the layer of a chart has to show; null while nobody sees it.
  scene(name) {
    return this.touched.has(name) ? this.contents.scene(name, this.axesInForce(name)) : null;
  }

  // As a visitor has zoomed them, until they change.
  axesInForce(name) {
    const axes = this.contents.axes.get(name);
    if (this.zoomable.get(name) !== axes) return axes;
    const { xaxis, yaxis } = this.nodes.get(name).layout;
    return { ...axes, x: { ...axes.x, range: xaxis.range }, y: { ...axes.y, range: yaxis.range } };
  }
}

const QUIET_MS = 300;
const QUIET_PLAYING_MS = 1000;

export class LiveCharts {
  /**
   * `nodes` by chart; `sceneOf(name)` is what its layer has to show, or null while nobody sees it; `isPlaying()`
   * tells whether a run goes on.
   */
  constructor(nodes, sceneOf, isPlaying) {
    this.isPlaying = isPlaying;
    this.layers = new Map(LIVE.map((name) => [name, new LiveLayer(nodes.get(name), () => sceneOf(name))]));
    this.changedAt = new Map();
  }

  /** The chart has another size or theme; `layout` is Plotly's. */
  dress(name, layout) {
    this.layers.get(name)?.dress(layout);
  }

  /** What the chart shows has changed, at `now`. */
  change(name, now) {
    this.changedAt.set(name, now);
    this.layers.get(name)?.request();
  }

  /** The chart has come into sight. */
  look(name) {
    this.layers.get(name)?.request();
  }

  /** When Plotly may draw a chart at the earliest: at once for a new size or theme and for charts without a layer. */
  notBefore(name) {
    const layer = this.layers.get(name);
    if (!layer || layer.alone) return 0;
    return this.changedAt.get(name) + (this.isPlaying() ? QUIET_PLAYING_MS : QUIET_MS);
  }

  /** Plotly has drawn a chart; `same` where nothing has changed meanwhile. */
  settle(name, same) {
    this.layers.get(name)?.settle(same);
  }
}

const GAP_MS = 250;
const REST = 12; // drawing for t is followed by a rest of 12 t at least

/**
 * Draws what is due, one piece a task, and rests after: 250 ms at least, and 12 times as long as it redrew.
 * `due()` lists what is to be drawn; `notBefore(name)` is when it may be at the earliest, by `now` of the clock;
 * `draw(name)` draws it, takes it off the list, and resolves to whether that was a redrawing: the first one takes
 * several times as long and comes but once.
 */
export class PlotPacer {
  constructor({ due, draw, notBefore = () => 0, clock = browserClock }) {
    this.due = due;
    this.draw = draw;
    this.notBefore = notBefore;
    this.clock = clock;
    this.busy = false;
    this.drawnAt = -GAP_MS;
    this.restedAt = 0;
    this.plan = null;
  }

  /** Something may be due. */
  wake() {
    if (this.busy) return;
    const names = this.due();
    if (!names.length) return;
    this.busy = true;
    const from = Math.max(this.restedAt, Math.min(...names.map((name) => this.notBefore(name))));
    this.plan = this.clock.after(Math.max(0, from - this.clock.now()), () => this.run());
  }

  /** Something is due of which a part cannot be seen until it is drawn: no rest but the least one. */
  hurry() {
    this.restedAt = Math.min(this.restedAt, this.drawnAt + GAP_MS);
    if (this.plan !== null) {
      this.clock.cancel(this.plan);
      this.plan = null;
      this.busy = false;
    }
    this.wake();
  }

  async run() {
    this.plan = null;
    const ready = this.due().filter((name) => this.notBefore(name) <= this.clock.now());
    let took = 0;
    try {
      for (const name of ready) {
        const from = this.clock.now();
        const again = await this.draw(name);
        if (again) took += this.clock.now() - from;
        await this.clock.turn();
      }
    } finally {
      if (ready.length) {
        this.drawnAt = this.clock.now();
        this.restedAt = this.drawnAt + Math.max(GAP_MS, REST * took);
      }
      this.busy = false;
      this.wake();
    }
  }
}

const browserClock = {
  now: () => performance.now(),
  after: (delay, callback) => setTimeout(callback, delay),
  cancel: (plan) => clearTimeout(plan),
  turn: () => new Promise((resolve) => setTimeout(resolve)),
};
