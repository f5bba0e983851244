// One chart of Python's figures on one node: drawn in the page's theme and width, seldom, and only while it is seen.

import { loadPlotly, PLOT_CONFIG, PLOT_NARROW_PX, PlotPacer, plotTheme } from "./plots.js";

export class Chart {
  /** `figures` come from Python, by theme. Nothing is loaded or drawn before the first `show`. */
  constructor(node, { base, figures }) {
    this.node = node;
    this.base = base;
    this.figures = figures;
    this.width = 0;
    this.stale = false;
    this.pacer = new PlotPacer({ due: () => this.due(), draw: () => this.draw() });
    new ResizeObserver(([{ contentRect }]) => this.resize(contentRect.width)).observe(node);
    new MutationObserver(() => this.outdate()).observe(document.body, { attributeFilter: ["class"] });
    document.addEventListener("visibilitychange", () => this.pacer.wake());
  }

  /** `fill(figure, narrow)` completes a copy of the theme's figure: its `data` and `layout` are Plotly's. */
  show(fill) {
    this.fill = fill;
    this.loading ??= loadPlotly(this.base).then(
      (plotly) => {
        this.plotly = plotly;
        this.pacer.wake();
      },
      () => {
        this.node.textContent = "The chart could not be loaded.";
      },
    );
    this.outdate();
  }

  resize(width) {
    if (width === this.width) return;
    this.width = width;
    this.outdate();
  }

  outdate() {
    this.stale = Boolean(this.fill);
    this.pacer.wake();
  }

  due() {
    return this.stale && this.plotly && this.width && !document.hidden ? ["chart"] : [];
  }

  async draw() {
    this.stale = false;
    const again = this.node.classList.contains("js-plotly-plot");
    const narrow = this.width < PLOT_NARROW_PX;
    const figure = structuredClone(this.figures[plotTheme()]);
    const { data, layout } = figure;
    Object.assign(layout, { width: this.width, height: this.node.clientHeight });
    if (narrow) for (const part of Object.keys(figure.narrow)) Object.assign(layout[part], figure.narrow[part]);
    if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
    this.fill({ data, layout }, narrow);
    await this.plotly.react(this.node, data, layout, PLOT_CONFIG);
    return again;
  }
}

/** Text as Plotly is to show it: its own markup is taken literally, line breaks and ends are seen. */
export function plotText(text, longest = Infinity) {
  const plain = text.replace(/\r\n|\n|\r/g, "⏎").replace(/\t/g, "⇥");
  const letters = [...plain];
  const shown = letters.length > longest ? `${letters.slice(0, longest - 1).join("")}…` : plain;
  return shown.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
