// The round strip on a canvas. Each round is a column as high as its draft, and filled up to its accepted tokens.

import { ownStatus, roundWords } from "../common/words.js";

const MAX_COLUMN = 18;
const MIN_TOP = 4; // the minimum height of the scale in tokens, so that the first columns do not fill the strip
const MARK_ROOM = 9; // the space above a column in pixels, for the mark of the target's own token

export class RoundStrip {
  /** `onOpen(index)` is called after a click or a key, and `onHover(index or null, event)` when the pointer moves. */
  constructor(node, { onOpen, onHover }) {
    this.node = node;
    this.canvas = node.querySelector("canvas");
    this.onOpen = onOpen;
    this.entries = [];
    this.settled = 0;
    this.selected = null;
    node.addEventListener("click", (event) => this.open(this.indexAt(event.offsetX)));
    node.addEventListener("keydown", (event) => this.key(event));
    node.addEventListener("pointermove", (event) => onHover(this.indexAt(event.offsetX, this.settled), event));
    node.addEventListener("pointerleave", () => onHover(null));
    this.width = 0;
    this.height = 0;
    new ResizeObserver(([{ contentRect }]) => this.resize(contentRect)).observe(node);
    new MutationObserver(() => this.draw()).observe(document.body, { attributeFilter: ["class"] });
  }

  /** Show all speculative rounds that have arrived, of which the first `settled` have been played. */
  show(entries, settled) {
    if (entries === this.entries && settled === this.settled && entries.length === this.known) return;
    this.entries = entries;
    this.known = entries.length;
    this.settled = settled;
    this.later();
  }

  select(index) {
    this.selected = index;
    this.later();
  }

  // Stores the size, because reading it in every frame would cost a layout each time.
  resize({ width, height }) {
    this.width = width;
    this.height = height;
    this.draw();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  open(index) {
    if (index !== null) this.onOpen(index);
  }

  key(event) {
    const last = this.entries.length - 1;
    const from = this.selected ?? Math.max(0, this.settled - 1);
    const moves = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, Enter: from };
    // If no round is selected, an arrow key opens the last round that was played.
    if (this.selected === null && event.key.startsWith("Arrow")) moves[event.key] = from;
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    this.open(Math.min(last, Math.max(0, moves[event.key])));
  }

  get step() {
    return Math.min(MAX_COLUMN, this.width / Math.max(1, this.entries.length));
  }

  indexAt(x, count = this.entries.length) {
    const index = Math.floor(x / this.step);
    return index >= 0 && index < count ? index : null;
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    const { width, height } = this;
    if (!width || !height) return;
    const scale = window.devicePixelRatio || 1;
    const dark = document.body.classList.contains("dark");
    const drawn = [width, height, scale, dark, this.entries.length].join();
    if (this.drawn !== drawn || this.columnsOf !== this.entries) {
      this.columns = this.drawColumns(width, height, scale);
      this.drawn = drawn;
      this.columnsOf = this.entries;
    }
    this.compose(width, height, scale);
    this.describe();
  }

  // Shows the rounds that have been played; a prediction would be spoiled by the others.
  compose(width, height, scale) {
    const pen = sizedPen(this.canvas, width, height, scale);
    const played = Math.round(Math.min(width, this.settled * this.step) * scale);
    if (played) pen.drawImage(this.columns, 0, 0, played, this.columns.height, 0, 0, played / scale, height);
    if (this.selected !== null) outline(pen, this.selected * this.step, this.step, height, this.ink);
  }

  drawColumns(width, height, scale) {
    const canvas = document.createElement("canvas");
    const pen = sizedPen(canvas, width, height, scale);
    const style = getComputedStyle(this.node);
    this.ink = style.getPropertyValue("--sd-ink").trim();
    const names = ["accepted", "discarded", "corrected", "bonus", "line"];
    const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--sd-${name}`).trim()]));
    const top = Math.max(MIN_TOP, ...this.entries.map(({ round }) => round.drafted.length));
    const unit = (height - MARK_ROOM - 2) / top;
    this.entries.forEach(({ round }, index) => {
      drawColumn(pen, round, { x: index * this.step, width: this.step, height, unit, colours });
    });
    return canvas;
  }

  describe() {
    const { node } = this;
    const index = this.selected ?? this.settled - 1; // -1 before the first verdict
    node.setAttribute("aria-valuemax", Math.max(1, this.entries.length));
    node.setAttribute("aria-valuenow", Math.max(1, index + 1));
    node.setAttribute("aria-valuetext", index < 0 ? "No rounds yet" : roundWords(this.entries[index].round));
  }
}

function sizedPen(canvas, width, height, scale) {
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function drawColumn(pen, round, { x, width, height, unit, colours }) {
  const gap = width > 5 ? 2 : width > 2 ? 1 : 0;
  const inner = width - gap;
  const accepted = round.drafted.filter((token) => token.status === "accepted").length;
  const kept = accepted * unit;
  const whole = Math.max(round.drafted.length * unit, 1);
  pen.fillStyle = colours.accepted;
  pen.fillRect(x, height - kept, inner, kept);
  if (whole > kept) {
    // Discarded tokens are hollow, so that one can tell them apart without seeing colors.
    pen.strokeStyle = colours.discarded;
    pen.lineWidth = 1;
    if (inner > 3) pen.strokeRect(x + 0.5, height - whole + 0.5, inner - 1, whole - kept - 1);
    else {
      pen.fillStyle = colours.line;
      pen.fillRect(x, height - whole, inner, whole - kept);
    }
  }
  if (round.emission && ownStatus(round) && width >= 4) drawMark(pen, ownStatus(round), x + inner / 2, height - whole - 5, Math.min(4, inner / 2), colours);
}

// Draws the mark of the target's own token: a triangle for a corrected token, a plus for a bonus token.
function drawMark(pen, status, x, y, size, colours) {
  pen.fillStyle = colours[status];
  pen.beginPath();
  if (status === "corrected") {
    pen.moveTo(x - size * 0.7, y - size);
    pen.lineTo(x + size, y);
    pen.lineTo(x - size * 0.7, y + size);
  } else {
    const arm = size * 0.35;
    pen.rect(x - size, y - arm, 2 * size, 2 * arm);
    pen.rect(x - arm, y - size, 2 * arm, 2 * size);
  }
  pen.fill();
}

function outline(pen, x, width, height, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.strokeRect(x - 1, 1, Math.max(4, width), height - 2);
}
