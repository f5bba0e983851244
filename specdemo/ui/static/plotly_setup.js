// Plotly as every chart of the page uses it: loaded once, with our buttons, in the page's theme and the room there is.

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
