// One chart of the lab: a figure made by Python, drawn again in place whenever it, the theme or its room changes.

import { fitPlot, loadPlotly, PLOT_CONFIG, plotTheme } from "./plots.js";

export class LabChart {
  constructor(node, base) {
    this.node = node;
    this.base = base;
    this.zoom = 0;
    new ResizeObserver(([{ contentRect }]) => {
      this.room = contentRect;
      this.draw();
    }).observe(node);
    new MutationObserver(() => this.draw()).observe(document.body, { attributeFilter: ["class"] });
  }

  /** Theme -> figure; one of the same subject keeps the zoom of the one before. */
  show(figures) {
    this.figures = figures;
    return this.draw();
  }

  /** Another subject comes next. */
  renew() {
    this.zoom += 1;
  }

  async draw() {
    const figure = this.figures?.[plotTheme()];
    if (!figure || !this.room?.width) return;
    const plotly = await loadPlotly(this.base);
    const { data, layout, narrow } = structuredClone(figure);
    layout.uirevision = this.zoom;
    fitPlot(layout, narrow, this.room);
    if (!this.node.classList.contains("js-plotly-plot")) this.node.replaceChildren();
    await plotly.react(this.node, data, layout, PLOT_CONFIG);
  }
}
