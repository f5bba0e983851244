// One chart of Python's figures on one node: drawn in the page's theme and in the room there is.

import { drawFigure, fitToRoom, loadPlotly, NARROW_PX, pageTheme } from "./plotly_setup.js";
import { named } from "./tokens.js";

export class Chart {
  /** Nothing is loaded or drawn before the first `show`. */
  constructor(node, base) {
    this.node = node;
    this.base = base;
    this.subject = 0;
    new ResizeObserver(([{ contentRect }]) => {
      this.room = contentRect;
      this.draw();
    }).observe(node);
    new MutationObserver(() => this.draw()).observe(document.body, { attributeFilter: ["class"] });
  }

  /**
   * `figures` come from Python, by theme. `fill(figure, narrow)` may complete a copy of one: its `data` and
   * `layout` are Plotly's. The zoom stays while the subject does.
   */
  show(figures, fill = () => {}) {
    this.figures = figures;
    this.fill = fill;
    return this.draw();
  }

  /** Another subject comes next. */
  renew() {
    this.subject += 1;
  }

  // While one drawing goes on, at most one more is wanted: of what is latest then.
  async draw() {
    if (!this.figures || !this.room?.width) return;
    this.stale = true;
    this.drawing ??= this.drawUntilFresh();
    await this.drawing;
  }

  async drawUntilFresh() {
    try {
      const plotly = await loadPlotly(this.base);
      while (this.stale) {
        this.stale = false;
        await this.drawOnce(plotly);
      }
    } catch {
      this.node.textContent = "The chart could not be drawn.";
    } finally {
      this.drawing = null;
    }
  }

  async drawOnce(plotly) {
    const figure = this.figures[pageTheme()];
    if (!figure) return; // made for the other theme; whoever made it makes another
    const { data, layout, narrow } = structuredClone(figure);
    layout.uirevision = this.subject;
    fitToRoom(layout, narrow, this.room);
    this.fill({ data, layout }, this.room.width < NARROW_PX);
    if (!this.node.classList.contains("js-plotly-plot")) this.node.replaceChildren();
    await drawFigure(plotly, this.node, { data, layout });
  }
}

/** Text as Plotly is to show it: its own markup is taken literally, line breaks and ends are seen. */
export function plotText(text, longest = Infinity) {
  const plain = named(text.replace(/\r\n|\r/g, "\n")).replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  const letters = [...plain];
  const shown = letters.length > longest ? `${letters.slice(0, longest - 1).join("")}…` : plain;
  return shown.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
