import assert from "node:assert/strict";
import { test } from "node:test";

import { setModelsRun } from "../../../specdemo/ui/static/player.js";
import { Plots } from "../../../specdemo/ui/static/plots.js";
import { Trace } from "../../../specdemo/ui/static/trace.js";
import { handClock } from "./hand_clock.js";
import { round, roundEvent, smallTrace, START, TOTALS } from "./made.js";

// Chart -> uids of its traces; tests/charts/test_stage_charts.py names the same.
const FILLED = {
  acceptance: ["accepted", "discarded", "corrected", "bonus"],
  rates: ["alpha", "tau"],
  speedup: ["speedup", "theory", "speedup-lead"],
  race: ["speculative", "speculative-lead", "baseline", "baseline-lead", "draft", "draft-lead"],
  time: ["drafting", "verifying", "rest"],
  position: ["position"],
};
const LIVE = ["acceptance", "speedup"];
const FIGURES = Object.fromEntries(["light", "dark"].map((theme) => [theme, skeletons(theme)]));

function skeletons(theme) {
  const figure = (name) => ({
    data: [
      ...FILLED[name].map((uid) => ({ uid, x: [null], y: [null] })),
      ...(LIVE.includes(name) ? [] : [{ uid: "room", x: [0.5], y: ["first"] }]),
    ],
    layout: {
      theme,
      title: { text: name, x: 0.02, pad: { t: 10 }, font: { size: 16 } },
      font: { size: 15 },
      margin: { l: 56, r: 14, t: 72, b: 44 },
      xaxis: { title: { text: "round" }, unifiedhovertitle: {} },
      yaxis: { title: { text: "tokens" } },
      shapes: [{ name: "selected", visible: false }, { name: "other" }],
      annotations: name === "speedup" ? [{ name: "no-baseline", visible: false, text: "no baseline" }] : [],
    },
    narrow: { margin: { l: 56, r: 14, t: 44, b: 44 } },
    dense: { [FILLED[name][0]]: { dense: true } },
  });
  return Object.fromEntries(Object.keys(FILLED).map((name) => [name, figure(name)]));
}

// As much of a page as the charts need: nodes, observers that report on demand, and a Plotly that takes notes.
function fakePage(t, { plotly = true, coarse = false } = {}) {
  const observers = [];
  class Observer {
    constructor(callback) {
      this.callback = callback;
      observers.push(this);
    }
    observe(target) {
      this.target = target;
    }
    disconnect() {
      this.callback = () => {};
    }
  }
  const classes = () => {
    const names = new Set();
    return { add: (name) => names.add(name), contains: (name) => names.has(name) };
  };
  const nodes = Object.keys(FILLED).map((plot) => ({
    dataset: { plot },
    classList: classes(),
    querySelectorAll: () => [],
    clicked: [],
    style: {},
    old: false,
    toggleAttribute(name, on) {
      this.old = on;
    },
    removeAttribute() {
      this.old = false;
    },
    append(canvas) {
      this.canvas = canvas;
    },
    on(name, handler) {
      if (name === "plotly_click") this.clicked.push(handler);
    },
  }));
  const scripts = [];
  const page = {
    nodes: Object.fromEntries(nodes.map((node) => [node.dataset.plot, node])),
    root: { querySelectorAll: () => nodes, hasAttribute: () => page.playing },
    playing: false,
    scripts,
    drawn: [],
    figure: {},
    frames: new Map(),
    // A pen that writes down the texts; whatever else it is told, it does.
    texts: [],
    pen: new Proxy(
      { measureText: () => ({ width: 9 }), createPattern: () => ({ setTransform() {} }), fillText: (text) => page.texts.push(text) },
      { get: (pen, name) => pen[name] ?? (() => {}) },
    ),
    paint: () => {
      page.texts.length = 0;
      const callbacks = [...page.frames.values()];
      page.frames.clear();
      for (const callback of callbacks) callback();
    },
    wakeUp: () => {},
    sight: (...names) => page.look(names, 1),
    look: (names, ratio) => {
      const seen = (target) => names.includes(target.dataset.plot);
      const change = (target) => ({ target, isIntersecting: seen(target), intersectionRatio: seen(target) ? ratio : 0 });
      observers[0].callback(nodes.map(change));
    },
    near: () => observers[1].callback([{ isIntersecting: true }]),
    resize: (width, height) =>
      observers[2].callback(nodes.map((target) => ({ target, contentRect: { width, height } }))),
    themed: () => observers[3].callback(),
  };
  const globals = {
    IntersectionObserver: Observer,
    ResizeObserver: Observer,
    MutationObserver: Observer,
    requestAnimationFrame: (callback) => {
      const frame = Symbol();
      page.frames.set(frame, callback);
      return frame;
    },
    cancelAnimationFrame: (frame) => page.frames.delete(frame),
    getComputedStyle: () => ({ getPropertyValue: () => "#123456" }),
    DOMMatrix: class {
      scale() {}
    },
    matchMedia: (query) => ({ matches: coarse && query === "(pointer: coarse)" }),
    document: {
      hidden: false,
      body: { classList: classes() },
      head: { append: (script) => scripts.push(script) },
      createElement: () => ({ style: {}, dataset: {}, setAttribute() {}, getContext: () => page.pen }),
      addEventListener: (name, listener) => (page.wakeUp = listener),
    },
    window: {
      Plotly: plotly && {
        react: async (node, data, layout) => {
          node.classList.add("js-plotly-plot");
          node.layout = structuredClone(layout);
          const { plot } = node.dataset;
          page.drawn.push(plot);
          page.figure[plot] = { ...Object.fromEntries(data.map((trace) => [trace.uid, trace])), layout };
        },
      },
    },
  };
  for (const [name, value] of Object.entries(globals)) {
    globalThis[name] = value;
    t.after(() => delete globalThis[name]);
  }
  return page;
}

async function shownPage(t, options = {}) {
  const page = fakePage(t, options);
  const chosen = [];
  const settings = { base: "http://here/files/", figures: FIGURES, markLift: 0.5 };
  const plots = new Plots(page.root, settings, (index) => chosen.push(index));
  const clock = handClock();
  plots.pacer.clock = clock;
  const drawn = async () => {
    page.drawn.length = 0;
    while (clock.waiting) await clock.fire();
    return [...page.drawn].sort();
  };
  const show = (trace, time) => plots.show(trace.stateAt(time), trace.totalsAt(time));
  return { page, plots, chosen, drawn, show };
}

const everything = Object.keys(FILLED).sort();
const nextTask = () => new Promise((resolve) => setTimeout(resolve));

function playable() {
  const trace = smallTrace();
  for (const entry of trace.arrived) entry.totals = { ...TOTALS, ...entry.totals };
  return trace;
}

async function readyPage(t, options) {
  const made = await shownPage(t, options);
  made.page.near();
  await nextTask();
  made.page.resize(600, 330);
  made.page.sight(...everything);
  await made.drawn();
  return made;
}

test("Plotly is not asked for before a chart comes near", async (t) => {
  const { page } = await shownPage(t, { plotly: false });
  assert.equal(page.scripts.length, 0);
  page.near();
  page.near();
  assert.equal(page.scripts.length, 1);
  assert.equal(page.scripts[0].src, "http://here/files/plotly.min.js");
  page.scripts[0].onerror();
  await nextTask();
  assert.equal(page.nodes.race.textContent, "The charts could not be loaded.");
});

test("Plotly waits while the models run on the processor that draws, and then draws all that is due", async (t) => {
  const { page, plots, drawn, show } = await readyPage(t);
  t.after(() => setModelsRun(false));
  globalThis.location = { hostname: "localhost" };
  setModelsRun(true);
  const trace = playable();
  plots.setTrace(trace);
  show(trace, trace.frontier());
  plots.wake();
  assert.deepEqual(await drawn(), []);
  const old = () => Object.values(page.nodes).filter((node) => node.old).length;
  assert.equal(old(), everything.length);
  setModelsRun(false);
  plots.wake();
  assert.equal(old(), everything.length);
  assert.deepEqual(await drawn(), everything);
  assert.equal(old(), 0);
});

test("a chart is drawn when it is in sight of a visible tab, not before", async (t) => {
  const { page, drawn } = await shownPage(t);
  page.near();
  await nextTask();
  assert.deepEqual(await drawn(), []);
  page.sight("race");
  page.resize(0, 0);
  assert.deepEqual(await drawn(), [], "no room yet");
  page.resize(600, 330);
  assert.deepEqual(await drawn(), ["race"]);
  document.hidden = true;
  page.sight("race", "time");
  assert.deepEqual(await drawn(), []);
  document.hidden = false;
  page.wakeUp();
  assert.deepEqual(await drawn(), ["time"]);
});

test("only charts whose data changed are redrawn, with the rounds played, forwards and back", async (t) => {
  const { page, plots, drawn, show } = await readyPage(t);
  const trace = playable();
  plots.setTrace(trace);
  assert.deepEqual(await drawn(), everything);
  show(trace, 1);
  assert.deepEqual(await drawn(), [], "nothing has ended");
  show(trace, 1.2);
  assert.deepEqual(await drawn(), ["race", "time"], "a baseline step");
  show(trace, 99);
  assert.deepEqual(await drawn(), everything);
  assert.deepEqual(page.figure.acceptance.accepted.y, [1, 2]);
  show(trace, 2.1);
  assert.deepEqual(await drawn(), everything);
  assert.deepEqual(page.figure.acceptance.accepted.y, [1]);
  assert.deepEqual(page.figure.acceptance.bonus.x, [null]);
  assert.deepEqual(page.figure.rates.room, { uid: "room", x: [0.5, 2.5], y: ["first", "first"] });
  assert.deepEqual(page.figure.acceptance.layout.xaxis.range, [0.5, 12.5], "of a run that goes on");
});

test("a chart of which only an edge is seen is drawn once, and then only when more of it is seen", async (t) => {
  const { page, plots, drawn, show } = await readyPage(t);
  const fresh = page.nodes.position;
  fresh.classList = { add: () => {}, contains: () => false };
  const trace = playable();
  plots.setTrace(trace);
  page.look(["race", "position"], 0.05);
  assert.deepEqual(await drawn(), ["position"]);
  show(trace, 99);
  page.look(["race"], 0.5);
  assert.deepEqual(await drawn(), ["race"]);
});

test("a new run resets the zoom, rounds of the same run keep it", async (t) => {
  const { page, plots, drawn, show } = await readyPage(t);
  const trace = playable();
  const revisions = [];
  const begin = () => plots.setTrace(trace);
  const steps = [begin, () => show(trace, 2.1), () => show(trace, 99), begin];
  for (const step of steps) {
    step();
    await drawn();
    revisions.push(page.figure.speedup.layout.uirevision);
  }
  const [first, second, third, last] = revisions;
  assert.equal(first, second);
  assert.equal(second, third);
  assert.notEqual(third, last);
});

test("the layers show at once what has been played; Plotly follows when nothing has changed for 300 ms", async (t) => {
  const { page, plots, show } = await readyPage(t);
  const { clock } = plots.pacer;
  const told = () => LIVE.map((name) => page.nodes[name].canvas.dataset.rounds);
  const hidden = () => LIVE.map((name) => page.nodes[name].canvas.hidden);
  const trace = playable();
  plots.setTrace(trace);
  page.paint();
  assert.deepEqual([told(), hidden()], [["0", "0"], [false, false]]);
  await clock.fire();
  clock.time += 5000; // rested
  page.drawn.length = 0;
  show(trace, 2.1);
  assert.equal(page.frames.size, 2, "one frame for each");
  show(trace, 99);
  assert.equal(page.frames.size, 2, "still one");
  page.paint();
  assert.deepEqual([told(), hidden()], [["2", "2"], [false, false]]);
  assert.equal(page.nodes.acceptance.canvas.dataset.bars, "2");
  assert.equal(page.nodes.speedup.canvas.dataset.points, "2");
  assert.ok(!page.texts.includes("acceptance"), "the title is Plotly's");
  await clock.fire();
  assert.deepEqual(page.drawn.sort(), ["position", "race", "rates", "time"]);
  const quiet = () => plots.live.notBefore("speedup") - clock.time;
  show(trace, 2.1);
  assert.equal(quiet(), 300);
  page.playing = true;
  assert.equal(quiet(), 1000, "while a run plays");
  page.playing = false;
  while (clock.waiting) await clock.fire();
  assert.deepEqual(page.figure.acceptance.accepted.y, [1]);
  assert.deepEqual(hidden(), [true, true]);
  show(trace, 2.1);
  assert.equal(page.frames.size, 0, "nothing new");
});

test("before Plotly is there, the layer draws the title and empty axes", async (t) => {
  const { page } = await shownPage(t);
  page.resize(600, 171);
  page.sight("acceptance");
  page.paint();
  assert.deepEqual(page.texts.slice(0, 1), ["acceptance"]);
  assert.ok(page.texts.includes("round") && page.texts.includes("tokens") && page.texts.includes("12"));
  assert.equal(page.nodes.acceptance.canvas.dataset.rounds, "0");
  assert.equal(page.nodes.speedup.canvas.dataset.rounds, undefined, "out of sight");
});

test("another size or theme is shown by the layer and drawn by Plotly without the long rest", async (t) => {
  const { page, plots } = await readyPage(t);
  plots.pacer.restedAt = plots.pacer.clock.time + 9000;
  page.resize(900, 342);
  page.paint();
  assert.ok(page.texts.includes("acceptance"));
  assert.equal(page.nodes.acceptance.canvas.style.width, "900px");
  assert.ok((await plots.pacer.clock.fire()) <= 250);
  const { font, margin } = page.figure.acceptance.layout;
  assert.deepEqual([font.size, margin.t], [24, Math.round(72 * 1.6)], "larger where there is room");
});

test("the layer keeps to the part a visitor has zoomed into", async (t) => {
  const { page, plots, drawn, show } = await readyPage(t);
  const trace = playable();
  plots.setTrace(trace);
  await drawn();
  page.nodes.acceptance.layout.xaxis.range = [1.5, 3.5];
  show(trace, 99);
  page.paint();
  assert.deepEqual(page.texts.slice(0, page.texts.indexOf("round")).at(-1), "2", "the only label of rounds there");
});

test("the chosen round is marked once it has been played", async (t) => {
  const { page, plots, drawn, show } = await readyPage(t);
  const trace = playable();
  const band = (name = "acceptance") => page.figure[name].layout.shapes[0];
  plots.setTrace(trace);
  show(trace, 2.1);
  await drawn();
  plots.select(1);
  assert.deepEqual(await drawn(), ["acceptance", "rates", "speedup"]);
  assert.equal(band().visible, false);
  show(trace, 99);
  await drawn();
  for (const name of ["acceptance", "rates", "speedup"]) {
    assert.deepEqual(band(name), { name: "selected", visible: true, x0: 1.5, x1: 2.5 });
  }
  assert.deepEqual(page.figure.acceptance.layout.shapes[1], { name: "other" });
  plots.select(1);
  assert.deepEqual(await drawn(), []);
  plots.select(null);
  await drawn();
  assert.equal(band().visible, false);
});

test("a click on a round chooses it, once for both halves of a tap", async (t) => {
  const { page, plots, chosen, drawn } = await readyPage(t);
  plots.setTrace(playable());
  await drawn();
  const listening = everything.map((name) => [name, page.nodes[name].clicked.length]);
  assert.deepEqual(
    listening.filter(([, count]) => count),
    [
      ["acceptance", 1],
      ["rates", 1],
      ["speedup", 1],
    ],
  );
  const [click] = page.nodes.acceptance.clicked;
  click({ points: [{ x: 5 }] });
  click({ points: [{ x: 5 }] });
  assert.deepEqual(chosen, [4]);
});

test("a finger scrolls the page instead of dragging a chart", async (t) => {
  const { page } = await readyPage(t, { coarse: true });
  assert.equal(page.figure.race.layout.dragmode, false);
});

test("another theme redraws everything, another class of the body nothing", async (t) => {
  const { page, drawn } = await readyPage(t);
  page.themed();
  assert.deepEqual(await drawn(), []);
  document.body.classList.add("dark");
  page.themed();
  assert.deepEqual(await drawn(), everything);
  assert.equal(page.figure.race.layout.theme, "dark");
  assert.equal(FIGURES.dark.race.data[0].x.length, 1, "the skeleton stays as it was");
});

test("a chart fills its place; in a narrow one the legend is below", async (t) => {
  const { page, drawn } = await readyPage(t);
  const looks = () => {
    const { width, height, margin } = page.figure.race.layout;
    return [width, height, margin.t];
  };
  assert.deepEqual(looks(), [600, 330, 72]);
  page.resize(400, 300);
  assert.deepEqual(await drawn(), everything);
  assert.deepEqual(looks(), [400, 300, 44]);
  page.resize(0, 0);
  assert.deepEqual(await drawn(), [], "hidden");
});

test("too many bars for the width take the dense look, of all that has arrived; rounds share bars instead", async (t) => {
  const { page, plots, drawn } = await readyPage(t);
  const looks = async (count) => {
    const trace = new Trace();
    trace.take(START);
    const compared_by_position = Array(count).fill(1);
    for (let i = 0; i < count; i += 1) trace.take(roundEvent("speculative", round(i, []), { ...TOTALS, compared_by_position }));
    plots.setTrace(trace);
    await drawn();
    return everything.filter((name) => Object.values(page.figure[name]).some((look) => look.dense));
  };
  assert.deepEqual(await looks(6), []);
  assert.deepEqual(await looks(7), ["position"]);
});

test("a run without baseline says so and hides its line", async (t) => {
  const { page, plots, drawn, show } = await readyPage(t);
  const note = () => page.figure.speedup.layout.annotations[0].visible;
  assert.equal(note(), false, "before any run");
  const trace = new Trace();
  trace.take({ ...START, run: { ...START.run, config: { ...START.run.config, baseline: false } } });
  trace.take(roundEvent("speculative", round(0, ["accepted"]), TOTALS));
  plots.setTrace(trace);
  show(trace, 99);
  await drawn();
  assert.equal(note(), true);
  assert.equal(page.figure.race.baseline.visible, false);
  assert.equal(page.figure.time.rest.text[1], "not run");
  plots.setTrace(playable());
  await drawn();
  assert.equal(note(), false);
});
