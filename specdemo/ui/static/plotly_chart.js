// Plotly as all charts use it: loaded once, with our buttons, theme and size; and a chart on a node of its own.

import { named } from "./tokens.js";

/** Below this width Python's `narrow` layout holds. */
export const NARROW_PX = 480;
const MOST_MAGNIFIED = 1.6;
/** The buttons by name: Plotly's own choice has one that sends the chart to a server. */
const PLOTLY_CONFIG = { displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };

let onItsWay = null;

/** Plotly from our own server, once for all charts of a page. */
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

/** Draw a figure into `node`, or what has changed of it. */
export async function drawFigure(plotly, node, { data, layout }) {
  await plotly.react(node, data, layout, PLOTLY_CONFIG);
  // Plotly moves the title of an axis out of the way of labels whose place it at times measures wrongly; ours has room.
  for (const title of node.querySelectorAll("[class^=g-y][class$=title]")) title.removeAttribute("transform");
}

/** The page's theme, by which figures are filed. */
export function pageTheme() {
  return document.body.classList.contains("dark") ? "dark" : "light";
}

/** Lay a chart out for its room; `narrow` is what Python has changed where that is little. */
export function fitToRoom(layout, narrow, { width, height }) {
  Object.assign(layout, { width, height });
  if (width < NARROW_PX) for (const part of Object.keys(narrow)) Object.assign(layout[part], narrow[part]);
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
}

/** Enlarge fonts and margins of a figure laid out for `design` (`width`, `height`) where it has more room. */
export function magnify(figure, design) {
  const { width, height } = figure.layout;
  const by = Math.min(MOST_MAGNIFIED, width / design.width, height / design.height);
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
