// The two charts: Python's skeletons filled with the rounds played so far, on chart nodes that stay.

const MIN_GAP_MS = 200;
const NARROW_PX = 480;
const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};

let loading;

function loadPlotly(base) {
  loading ??= new Promise((resolve, reject) => {
    if (window.Plotly) return resolve(window.Plotly);
    const script = document.createElement("script");
    script.src = new URL("plotly.min.js", base).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("Plotly did not load"));
    document.head.append(script);
  });
  return loading;
}

// On a phone the legend takes several rows, which would cover the title.
function legendBelow(layout) {
  layout.legend = { ...layout.legend, y: -0.3, yanchor: "top" };
  layout.margin = { ...layout.margin, t: 44, r: 8, b: 120 };
}

export class Plots {
  constructor(root, { base, figures, markLift }) {
    this.charts = Object.fromEntries(
      [...root.querySelectorAll("[data-plot]")].map((node) => [node.dataset.plot, node]),
    );
    this.figures = figures;
    this.markLift = markLift;
    this.run = 0;
    this.clear();
    loadPlotly(base).then((Plotly) => {
      this.plotly = Plotly;
      this.draw();
    });
    new MutationObserver(() => this.draw()).observe(document.body, { attributeFilter: ["class"] });
  }

  /** A new run begins: empty charts, default zoom. */
  clear() {
    this.run += 1;
    this.rounds = [];
    this.totals = [];
    this.later();
  }

  /** A speculative round has been played. */
  add(round, totals) {
    this.rounds.push(round);
    this.totals.push(totals);
    this.later();
  }

  later() {
    this.timer ??= setTimeout(() => this.draw(), MIN_GAP_MS);
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (!this.plotly) return;
    const figures = structuredClone(this.figures[document.body.classList.contains("dark") ? "dark" : "light"]);
    const points = { ...this.acceptance(), ...this.speedup() };
    for (const [name, node] of Object.entries(this.charts)) {
      const { data, layout } = figures[name];
      for (const trace of data) Object.assign(trace, points[trace.uid]);
      layout.uirevision = this.run;
      if (node.clientWidth < NARROW_PX) legendBelow(layout);
      if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
      this.plotly.react(node, data, layout, CONFIG);
    }
  }

  acceptance() {
    const accepted = (round) => round.drafted.filter((token) => token.status === "accepted").length;
    const numbers = this.rounds.map((round) => round.index + 1);
    const marks = (status) => {
      const chosen = this.rounds.filter((round) => round.emission?.status === status);
      const top = (round) => round.drafted.length + this.markLift;
      return { x: chosen.map((round) => round.index + 1), y: chosen.map(top) };
    };
    return {
      accepted: { x: numbers, y: this.rounds.map(accepted) },
      discarded: { x: numbers, y: this.rounds.map((round) => round.drafted.length - accepted(round)) },
      corrected: marks("corrected"),
      bonus: marks("bonus"),
    };
  }

  speedup() {
    const numbers = this.rounds.map((round) => round.index + 1);
    return {
      speedup: { x: numbers, y: this.totals.map((totals) => totals.speedup) },
      theory: { x: numbers, y: this.totals.map((totals) => totals.s_theory) },
    };
  }
}
