// A canvas over the live chart, in Plotly's coordinates, which follows a run at a fraction of Plotly's cost. It covers
// the axes and everything between them; Plotly draws the title and the legend.

import { ticksOf } from "./plot_contents.js";

const COLOURS = ["ink", "line", "surface"];
const OVERHANG = 7; // pixels by which marks may extend beyond the axes
// The positions of Plotly's texts, in pixels; `em` is the height of the letters.
const LABEL_GAP = (em) => 0.2 * em + 1;
const X_LABEL = (em) => 1.2 * em + 1;
const X_TITLE = (em) => 2.23 * em + 2.6;
const Y_TITLE_GAP = (em) => 0.27 * em + 3.8;
const MIDDLE_EM = 0.35;
const TITLE_EM = 0.7;
// Dashes as in Plotly, in units of the line's width.
const DASHES = { solid: [], dot: [1, 1], dash: [3, 3] };
// The outlines of marks as in Plotly, for a radius of 1.
const MARKS = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]] };

/**
 * The layer of the chart's node. Attributes of the canvas report what it shows: `data-rounds`, the number of rounds
 * played; `data-points`, the number of points of the first line; and `data-last`, its last value.
 */
export class ChartCanvas {
  /** `scene()` returns what to draw, in the form of `PlotContents.scene`; null if there is nothing to draw. */
  constructor(node, scene) {
    this.node = node;
    this.scene = scene;
    this.canvas = document.createElement("canvas");
    this.canvas.className = "sd-chart-canvas";
    this.canvas.setAttribute("aria-hidden", "true");
    node.append(this.canvas);
  }

  /**
   * Take another size or theme from Plotly's `layout`. Until Plotly has drawn it too, the layer also draws the title.
   */
  dress(layout) {
    this.layout = layout;
    this.em = layout.font.size;
    const style = getComputedStyle(this.node);
    this.colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--sd-${name}`).trim()]));
    const { canvas } = this;
    Object.assign(canvas.style, { left: style.paddingLeft, top: style.paddingTop, width: `${layout.width}px`, height: `${layout.height}px` });
    this.scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(layout.width * this.scale);
    canvas.height = Math.round(layout.height * this.scale);
    this.look = [layout.width, layout.margin.t, this.em, this.colours.surface].join();
  }

  /** True if Plotly has not drawn its title and legend yet in the current size and theme. */
  get isAlone() {
    return this.look !== this.lookOfPlotly;
  }

  /** Draw in the next animation frame. */
  request() {
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  /** Call after Plotly has drawn the chart. `same`: Plotly shows what the layer would show, so the layer is hidden. */
  settle(same) {
    this.lookOfPlotly = this.look;
    this.node.removeAttribute("data-alone");
    if (!same) return this.request();
    if (this.frame) {
      cancelAnimationFrame(this.frame);
      this.draw(); // for its attributes
    }
    this.canvas.hidden = true;
  }

  draw() {
    this.frame = undefined;
    const scene = this.layout && this.scene();
    if (!scene) return;
    this.node.toggleAttribute("data-alone", this.isAlone);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    const plot = this.plotFor(scene.axes);
    this.drawAxes(pen, plot, scene.axes);
    pen.save();
    pen.beginPath();
    pen.rect(plot.left, plot.top - OVERHANG, plot.right - plot.left + OVERHANG, plot.bottom - plot.top + OVERHANG);
    pen.clip();
    for (const trace of scene.data) if (trace.visible !== false) (trace.mode === "lines" ? drawLine : drawMark)(pen, plot, trace);
    pen.restore();
    const { y } = scene.data[0];
    Object.assign(this.canvas.dataset, { rounds: scene.rounds, points: y.filter((value) => value !== null).length, last: y.at(-1) ?? "" });
    this.canvas.hidden = false;
  }

  plotFor({ x, y }) {
    const { width, height, margin } = this.layout;
    const [left, right, top, bottom] = [margin.l, width - margin.r, margin.t, height - margin.b];
    const along = ({ range: [from, to] }, start, end) => (value) => start + ((value - from) / (to - from)) * (end - start);
    return { left, right, top, bottom, x: along(x, left, right), y: along(y, bottom, top) };
  }

  drawAxes(pen, plot, axes) {
    const { layout, colours, em } = this;
    pen.clearRect(0, 0, layout.width, layout.height);
    pen.fillStyle = colours.surface;
    // The legend is right above the axes. Only the labels beside the axes extend higher.
    pen.fillRect(0, plot.top, layout.width, layout.height - plot.top);
    pen.fillRect(0, plot.top - OVERHANG, plot.left, OVERHANG);
    if (this.isAlone) this.writeTitle(pen);
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.beginPath();
    let widest = 0;
    for (const value of ticksOf(axes.y)) {
      const at = Math.round(plot.y(value)) + 0.5;
      pen.moveTo(plot.left, at);
      pen.lineTo(plot.right, at);
      const label = numberWords(value);
      this.write(pen, label, plot.left - LABEL_GAP(em), plot.y(value) + MIDDLE_EM * em, "right");
      widest = Math.max(widest, pen.measureText(label).width);
    }
    for (const value of ticksOf(axes.x)) {
      const at = Math.round(plot.x(value)) + 0.5;
      pen.moveTo(at, plot.top);
      pen.lineTo(at, plot.bottom);
      this.write(pen, numberWords(value), plot.x(value), plot.bottom + X_LABEL(em), "center");
    }
    pen.stroke();
    this.write(pen, layout.xaxis.title.text, (plot.left + plot.right) / 2, plot.bottom + X_TITLE(em), "center");
    pen.save();
    pen.translate(plot.left - LABEL_GAP(em) - widest - Y_TITLE_GAP(em), (plot.top + plot.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    this.write(pen, layout.yaxis.title.text, 0, 0, "center");
    pen.restore();
  }

  writeTitle(pen) {
    const { text, font, pad, x } = this.layout.title;
    this.write(pen, text, x * this.layout.width, pad.t + TITLE_EM * font.size, "left", font);
  }

  write(pen, text, x, y, align, { size, weight = 400 } = { size: this.em }) {
    pen.font = `${weight} ${size}px ${this.layout.font.family}`;
    pen.textAlign = align;
    pen.fillStyle = this.colours.ink;
    pen.fillText(text, x, y);
  }
}

// Without the noise of sums such as 3 × 0.1.
function numberWords(value) {
  return String(Number(value.toFixed(2)));
}

function drawLine(pen, plot, { x, y, line }) {
  pen.strokeStyle = line.color;
  pen.lineWidth = line.width;
  pen.setLineDash(DASHES[line.dash ?? "solid"].map((length) => length * line.width));
  pen.beginPath();
  x.forEach((at, i) => pen[i ? "lineTo" : "moveTo"](plot.x(at), plot.y(y[i])));
  pen.stroke();
}

function drawMark(pen, plot, { x: [x], y: [y], marker }) {
  if (x === null) return;
  const [left, top, radius] = [plot.x(x), plot.y(y), marker.size / 2];
  pen.fillStyle = marker.color;
  pen.beginPath();
  if (marker.symbol === "circle") pen.arc(left, top, radius, 0, 2 * Math.PI);
  else for (const [right, down] of MARKS[marker.symbol]) pen.lineTo(left + right * radius, top + down * radius);
  pen.fill();
}
