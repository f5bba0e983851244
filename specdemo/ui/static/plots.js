// The six charts: Python's skeletons filled with what has been played so far, on chart nodes that stay.
// The page may share its processor with the models: only charts in sight are drawn, and seldom.

import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";

const PLOT_GAP_MS = 250;
const PLOT_REST = 12; // drawing for t is followed by a rest of 12 t at least
export const PLOT_NARROW_PX = 480;
const PLOT_NEAR = "400px";
const PLOT_IN_SIGHT = 0.2; // a chart of which less is seen need not follow the run
const PLOT_TAP_MS = 400;
// The buttons by name: Plotly's own choice has one that sends the chart to a server.
export const PLOT_CONFIG = { displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
const PLOT_DENSE_PX = { acceptance: 5, position: 90 }; // of a chart's width for each of its bars
const ROUND_PLOTS = ["acceptance", "rates", "speedup", "position"];
const CLOCK_PLOTS = ["race", "time"];
const SELECTABLE_PLOTS = ["acceptance", "rates", "speedup"];
const ROOM_TOKENS = 16; // the race begins with room for so many tokens of the target alone
const RACE_KEYS = {
  [SPECULATIVE]: ["seconds", "tokens"],
  [BASELINE]: ["baseline_seconds", "baseline_tokens"],
  [DRAFT]: ["draft_alone_seconds", "draft_alone_tokens"],
};

// What a chart shows, by trace uid: from the entries played so far (see `LaneTrace`) or the figures.
// `{}` leaves a trace of the skeleton blank, in the legend all the same.

export function acceptancePoints(entries, markLift) {
  const rounds = entries.map(({ round }) => round);
  const kept = rounds.map(({ drafted }) => drafted.filter(({ status }) => status === "accepted").length);
  const numbers = plotRounds(entries);
  const marks = (status) => {
    const chosen = rounds.filter(({ emission }) => emission?.status === status);
    return plotPoints(
      chosen.map(({ index }) => index + 1),
      chosen.map(({ drafted }) => drafted.length + markLift),
    );
  };
  return {
    accepted: plotPoints(numbers, kept),
    discarded: plotPoints(
      numbers,
      rounds.map(({ drafted }, i) => drafted.length - kept[i]),
    ),
    corrected: marks("corrected"),
    bonus: marks("bonus"),
  };
}

export function ratePoints(entries) {
  return { alpha: figurePoints(entries, "alpha_compared"), tau: figurePoints(entries, "tau") };
}

export function speedupPoints(entries) {
  return { speedup: figurePoints(entries, "speedup"), theory: figurePoints(entries, "s_theory") };
}

/** `played`: lane -> its entries played so far, for the lanes that run. */
export function racePoints(played) {
  const points = {};
  for (const [lane, [seconds, tokens]] of Object.entries(RACE_KEYS)) {
    const entries = played[lane] ?? [];
    const x = entries.map(({ totals }) => totals[seconds]);
    const y = entries.map(({ totals }) => totals[tokens]);
    const shown = lane in played ? {} : { visible: false };
    points[lane] = { ...plotPoints(x, y), ...shown };
    points[`${lane}-lead`] = { ...plotPoints(x.slice(-1), y.slice(-1)), ...shown };
  }
  return points;
}

/** Upper bar: the speculative lane; lower: the target alone, if it runs. */
export function timePoints(totals, hasBaseline) {
  if (!totals) return {};
  const alone = hasBaseline ? plotSeconds(totals.baseline_seconds) : "not run";
  return {
    drafting: { x: [totals.draft_s, 0] },
    verifying: { x: [totals.verify_s, totals.baseline_verify_s] },
    rest: { x: [totals.other_s, totals.baseline_other_s], text: [plotSeconds(totals.seconds), alone] },
  };
}

export function positionPoints(totals) {
  if (!totals) return {};
  const { accepted_by_position: accepted, compared_by_position: compared } = totals;
  const points = plotPoints(
    compared.map((_, place) => place + 1),
    compared.map((count, place) => (count ? accepted[place] / count : null)),
  );
  return { position: { ...points, text: compared.map((count, place) => `${accepted[place]} of ${count}`) } };
}

/**
 * A point the axes of a chart reach over whatever has been played: the end of all that has arrived of the run,
 * so that they hold still while it is played or scrubbed, and room for the target's first tokens.
 */
export function plotReach(name, trace) {
  const latest = (lane) => trace?.entries(lane).at(-1)?.totals;
  if (SELECTABLE_PLOTS.includes(name)) return { x: (trace?.entries(SPECULATIVE).length ?? 0) + 0.5 };
  if (name === "position") return { x: (latest(SPECULATIVE)?.compared_by_position.length ?? 0) + 0.5 };
  const lanes = name === "time" ? [SPECULATIVE, BASELINE] : Object.keys(RACE_KEYS);
  const ends = lanes.map((lane) => RACE_KEYS[lane].map((key) => latest(lane)?.[key] ?? 0));
  const step = trace?.start?.run.calibration?.step_s ?? 0;
  const seconds = Math.max(ROOM_TOKENS * step, ...ends.map(([x]) => x));
  return name === "time" ? { x: seconds } : { x: seconds, y: Math.max(ROOM_TOKENS, ...ends.map(([, y]) => y)) };
}

function plotSeconds(seconds) {
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

function plotRounds(entries) {
  return entries.map(({ round }) => round.index + 1);
}

function figurePoints(entries, name) {
  return plotPoints(
    plotRounds(entries),
    entries.map(({ totals }) => totals[name]),
  );
}

function plotPoints(x, y) {
  return x.length ? { x, y } : {};
}

/**
 * Draws what is due, one piece a task, and rests after: 250 ms at least, and 12 times as long as it redrew.
 * `due()` lists what is to be drawn; `draw(name)` draws it, takes it off the list, and resolves to whether that
 * was a redrawing: the first one takes several times as long and comes but once.
 */
export class PlotPacer {
  constructor({ due, draw, clock = browserPlotClock }) {
    this.due = due;
    this.draw = draw;
    this.clock = clock;
    this.busy = false;
    this.restedAt = 0;
  }

  /** Something may be due. */
  wake() {
    if (this.busy || !this.due().length) return;
    this.busy = true;
    this.clock.after(Math.max(0, this.restedAt - this.clock.now()), () => this.run());
  }

  async run() {
    let took = 0;
    try {
      for (const name of this.due()) {
        const from = this.clock.now();
        const again = await this.draw(name);
        if (again) took += this.clock.now() - from;
        await this.clock.turn();
      }
    } finally {
      this.restedAt = this.clock.now() + Math.max(PLOT_GAP_MS, PLOT_REST * took);
      this.busy = false;
      this.wake();
    }
  }
}

const browserPlotClock = {
  now: () => performance.now(),
  after: (delay, callback) => setTimeout(callback, delay),
  turn: () => new Promise((resolve) => setTimeout(resolve)),
};

let plotlyOnItsWay = null;

/** Plotly from our own server, once for all charts of a page. */
export function loadPlotly(base) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  plotlyOnItsWay ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("plotly.min.js", base).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("Plotly did not load"));
    document.head.append(script);
  });
  return plotlyOnItsWay;
}

function restylePlot(data, parts) {
  for (const trace of data) Object.assign(trace, parts[trace.uid]);
}

/** The page's theme, by which figures are filed. */
export function plotTheme() {
  return document.body.classList.contains("dark") ? "dark" : "light";
}

/** Lay a chart out for its room; `narrow` is what Python has changed where that is little. */
export function fitPlot(layout, narrow, { width, height }) {
  Object.assign(layout, { width, height });
  if (width < PLOT_NARROW_PX) for (const part of Object.keys(narrow)) Object.assign(layout[part], narrow[part]);
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
}

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
    this.theme = plotTheme();
    this.stale = new Set();
    this.inSight = new Set();
    this.touched = new Set(); // charts of which any part is seen: drawn once, so that none stands empty
    this.sizes = new Map();
    this.run = 0;
    this.selected = null;
    this.clickedAt = -PLOT_TAP_MS;
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
    const moved = Object.keys(RACE_KEYS).filter((lane) => settled(lane, state) !== settled(lane, this.state));
    this.state = state;
    this.totals = totals;
    if (moved.includes(SPECULATIVE)) this.outdate(ROUND_PLOTS);
    if (moved.length) this.outdate(CLOCK_PLOTS);
  }

  /** Mark this round (from 0) in the charts that have one place a round; null: none. */
  select(index) {
    if (index === this.selected) return;
    this.selected = index;
    this.outdate(SELECTABLE_PLOTS);
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
    const sight = new IntersectionObserver((changes) => this.look(changes), { threshold: [0, PLOT_IN_SIGHT] });
    const near = new IntersectionObserver(
      (changes) => {
        if (!changes.some(({ isIntersecting }) => isIntersecting)) return;
        near.disconnect();
        this.load();
      },
      { rootMargin: PLOT_NEAR },
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
      this.inSight[intersectionRatio >= PLOT_IN_SIGHT ? "add" : "delete"](name);
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
    if (this.theme === plotTheme()) return;
    this.theme = plotTheme();
    this.outdate(this.nodes.keys());
  }

  async draw(name) {
    this.stale.delete(name);
    const node = this.nodes.get(name);
    const again = this.isDrawn(name);
    const { data, layout } = this.figure(name);
    await this.plotly.react(node, data, layout, PLOT_CONFIG);
    if (!again && SELECTABLE_PLOTS.includes(name)) {
      node.on("plotly_click", ({ points }) => this.click(points[0].x - 1));
    }
    return again;
  }

  isDrawn(name) {
    return this.nodes.get(name).classList.contains("js-plotly-plot");
  }

  // A tap arrives twice, as touch and as mouse; a double click is for the zoom.
  click(index) {
    const first = performance.now() - this.clickedAt > PLOT_TAP_MS;
    this.clickedAt = performance.now();
    if (first) this.onSelect(index);
  }

  figure(name) {
    const { data, layout, narrow, dense } = structuredClone(this.figures[this.theme][name]);
    const reach = plotReach(name, this.trace);
    const bars = reach.x - 0.5;
    const { width, height } = this.sizes.get(name);
    if (width < bars * PLOT_DENSE_PX[name]) restylePlot(data, dense);
    restylePlot(data, this.points(name));
    const room = data.find(({ uid }) => uid === "room");
    room.x.push(reach.x);
    room.y.push(reach.y ?? room.y[0]);
    layout.uirevision = this.run;
    fitPlot(layout, narrow, { width, height });
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
