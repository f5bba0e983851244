// The use of Plotly by all charts: it is loaded once, and gets our buttons, theme and sizes. Also a single chart.

import { button, element } from "./dom.js";
import { named } from "../stage/tokens.js";

/** The width below which a chart uses Python's `narrow` layout. */
const NARROW_PX = 480;
const MAX_MAGNIFIED = 1.6;
const PLOTLY_CONFIG = { displayModeBar: false };

let onItsWay = null;

/** Load Plotly from our own server, once per page. */
export function loadPlotly(base) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  onItsWay ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("plotly.min.js", base).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("Plotly did not load"));
    document.head.append(script);
  });
  return onItsWay;
}

/** Draw a figure into `node`; if `node` has a figure already, only the changes are drawn. */
export async function drawFigure(plotly, node, { data, layout }) {
  await plotly.react(node, data, layout, PLOTLY_CONFIG);
  // Plotly moves axis titles out of the way of labels, whose size it sometimes measures wrongly. Our titles need no
  // move.
  for (const title of node.querySelectorAll("[class^=g-y][class$=title]")) title.removeAttribute("transform");
  if (!node.querySelector(".sd-save")) node.append(element("span", "sd-save", saver(plotly, node, "png"), saver(plotly, node, "svg")));
}

/** A button that saves a chart as a file of this format. */
function saver(plotly, node, format) {
  const made = button("sd-button", format.toUpperCase(), () => {
    const { width, height, title } = node.layout;
    const words = title?.text ?? node.getAttribute("aria-label");
    const filename = `specdemo-${words.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
    plotly.downloadImage(node, { format, width, height, filename, scale: format === "png" ? 2 : 1 });
  });
  made.setAttribute("aria-label", `Save this chart as ${format.toUpperCase()}`);
  made.title = `Save this chart as ${format.toUpperCase()}`;
  return made;
}

/** The current theme of the page, as the key of the figures for that theme. */
export function pageTheme() {
  return document.body.classList.contains("dark") ? "dark" : "light";
}

/** Set the size of a layout; `narrow` has the changes that Python provides for a chart below `narrowPx`. */
export function fitToRoom(layout, narrow, { width, height }, narrowPx = NARROW_PX) {
  Object.assign(layout, { width, height });
  if (width < narrowPx) for (const part of Object.keys(narrow)) Object.assign(layout[part], narrow[part]);
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // otherwise a finger could not scroll the page
}

/** Enlarge the fonts and margins of a figure that is larger than the size for which it was designed. */
export function magnify(figure, design) {
  const { width, height } = figure.layout;
  const by = Math.min(MAX_MAGNIFIED, width / design.width, height / design.height);
  if (by > 1) enlarge(figure, by);
}

function enlarge(part, by) {
  for (const [name, value] of Object.entries(part)) {
    if (name === "margin") for (const side of "lrtb") value[side] = Math.round(value[side] * by);
    else if (name === "pad") value.t *= by;
    else if (name === "font" || name === "textfont") value.size *= by;
    if (value && typeof value === "object") enlarge(value, by);
  }
}

/** A chart on its own node, with figures made by Python. Plotly is not loaded before the first `show`. */
export class Chart {
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

  /** Show `figures`, by theme. `fill({ data, layout }, narrow)` may complete a copy of the figure. The zoom is kept. */
  show(figures, fill = () => {}) {
    this.figures = figures;
    this.fill = fill;
    return this.draw();
  }

  /** Reset the zoom when the next figure is shown. */
  renew() {
    this.subject += 1;
  }

  // While a drawing is in progress, at most one more waits, which will draw the latest figure.
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
      this.node.textContent = "The chart did not load. Reload the page.";
    } finally {
      this.drawing = null;
    }
  }

  async drawOnce(plotly) {
    const figure = this.figures[pageTheme()];
    if (!figure) return; // these figures are only for the other theme; others will follow
    const { data, layout, narrow } = structuredClone(figure);
    layout.uirevision = this.subject;
    fitToRoom(layout, narrow, this.room);
    // A low room will grow, and the figure be drawn then; a room without height grows only when it has a figure.
    if (layout.height && layout.height <= layout.margin.t + layout.margin.b) return;
    this.fill({ data, layout }, this.room.width < NARROW_PX);
    if (!this.node.classList.contains("js-plotly-plot")) this.node.replaceChildren();
    await drawFigure(plotly, this.node, { data, layout });
  }
}

/** Text for Plotly, in which markup is escaped, and line breaks and tabs are visible. */
export function plotText(text, longest = Infinity) {
  const plain = named(text.replace(/\r\n|\r/g, "\n")).replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  const letters = [...plain];
  const shown = letters.length > longest ? `${letters.slice(0, longest - 1).join("")}…` : plain;
  return shown.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
