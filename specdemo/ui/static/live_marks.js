// What the live layer draws between its axes, as Plotly draws the same points. Coordinates are those of a `plot`:
// `x(value)` and `y(value)` in pixels, and its edges.

import { BAR_GAP } from "./plot_points.js";

const LEAD = 6.5; // half of Python's LEAD_SIZE
const LINE = 4;

/** Stacked bars and marks over them; returns what was drawn. */
export function drawBars(pen, plot, { accepted, discarded, corrected, bonus }, colours) {
  const { x = [], y: kept = [] } = accepted;
  x.forEach((at, i) => {
    const half = (accepted.width?.[i] ?? 1 - BAR_GAP) / 2;
    const [left, right] = [plot.x(at - half), plot.x(at + half)];
    const [top, between] = [plot.y(kept[i] + discarded.y[i]), plot.y(kept[i])];
    pen.fillStyle = colours.accepted;
    pen.fillRect(left, between, right - left, plot.y(0) - between);
    pen.fillStyle = colours.hatching;
    pen.fillRect(left, top, right - left, between - top);
  });
  drawMarks(pen, plot, corrected, colours.corrected, TRIANGLE);
  drawMarks(pen, plot, bonus, colours.bonus, CROSS);
  return { bars: x.length, last: x.length ? kept.at(-1) : "" };
}

/** The line at 1×, the theory and the measured speedup with its last point; returns what was drawn. */
export function drawLines(pen, plot, { speedup, theory, "speedup-lead": lead }, colours) {
  pen.lineWidth = LINE;
  drawLine(pen, plot, speedup, colours.accepted, []);
  drawLine(pen, plot, theory, colours.muted, [LINE, LINE]);
  pen.lineWidth = 3;
  drawLevel(pen, plot, 1, colours.ink, [9, 9]);
  if (lead.x && lead.y[0] !== null) {
    pen.fillStyle = colours.accepted;
    pen.beginPath();
    pen.arc(plot.x(lead.x[0]), plot.y(lead.y[0]), LEAD, 0, 2 * Math.PI);
    pen.fill();
  }
  return { points: speedup.x?.length ?? 0, last: speedup.y?.at(-1) ?? "" };
}

function drawLevel(pen, plot, level, colour, dash) {
  pen.strokeStyle = colour;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(plot.left, plot.y(level));
  pen.lineTo(plot.right, plot.y(level));
  pen.stroke();
  pen.setLineDash([]);
}

function drawLine(pen, plot, { x = [], y = [] }, colour, dash) {
  pen.strokeStyle = colour;
  pen.setLineDash(dash);
  pen.beginPath();
  x.forEach((at, i) => {
    if (y[i] === null) return;
    const follows = i > 0 && y[i - 1] !== null;
    pen[follows ? "lineTo" : "moveTo"](plot.x(at), plot.y(y[i]));
  });
  pen.stroke();
  pen.setLineDash([]);
}

const TRIANGLE = [[-2.9, -5.8], [5.8, 0], [-2.9, 5.8]];
const CROSS = [[2, -6], [2, -2], [6, -2], [6, 2], [2, 2], [2, 6], [-2, 6], [-2, 2], [-6, 2], [-6, -2], [-2, -2], [-2, -6]];

function drawMarks(pen, plot, { x = [], y = [] }, colour, outline) {
  pen.fillStyle = colour;
  pen.beginPath();
  x.forEach((at, i) => {
    const [middle, level] = [plot.x(at), plot.y(y[i])];
    outline.forEach(([right, down], corner) => pen[corner ? "lineTo" : "moveTo"](middle + right, level + down));
    pen.closePath();
  });
  pen.fill();
}
