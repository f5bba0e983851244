// Ways to share a run: as a trace file, as a page that replays it offline, as a picture, as a link, or in a frame.

import { element } from "../common/dom.js";
import { tables } from "../common/tables.js";

const IMAGE_PADDING = 14; // px, that of .sd-picture
const EVENTS_TAG = /(<script type="application\/x-ndjson" id="specdemo-events">)[^]*?(<\/script>)/;

/** Events as NDJSON that is safe inside a script element. */
function eventsForPage(events) {
  return events.map((event) => JSON.stringify(event).replaceAll("<", "\\u003c")).join("\n");
}

/** The offline page with these events and a link to `live`; `template` is the page without them. */
export function offlinePage(template, events, live) {
  return template
    .replace(EVENTS_TAG, (_, open, close) => `${open}\n${eventsForPage(events)}\n${close}`)
    .replace("<a data-live hidden>", () => `<a href="${attribute(live)}">`);
}

function attribute(value) {
  return value.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
}

/** A link to a recording, or, without one, to the page with a run's settings and models. */
export function linkTo(address, { config, pair }, recording) {
  const url = bareAddress(address);
  if (recording) url.searchParams.set("trace", recording);
  else addSettings(url, { ...config, pair: pair.name });
  return url.href;
}

/** What the page says about a copied link: only that to a recording shows another person the same text. */
export function linkWords(recording) {
  if (recording) return "Link copied.";
  return "Link copied. It opens the page with this prompt and these settings, but without this run: press Run there.";
}

/** HTML that shows a recording in a frame on another site. */
export function frameOf(address, recording) {
  const url = bareAddress(address);
  url.searchParams.set("embed", "1");
  url.searchParams.set("trace", recording);
  return frame(url.href);
}

/** HTML that shows a page in a frame. */
export function frame(source) {
  return `<iframe src="${attribute(source)}" title="A run of speculative decoding" width="100%" height="640" style="border: 0" loading="lazy"></iframe>`;
}

/** A link to a lesson or a question of the quiz, with settings for the widgets and, if there is one, a recording. */
export function classLink(address, { lesson, question }, config, recording) {
  const url = bareAddress(address);
  url.searchParams.set("lesson", lesson);
  if (question) url.searchParams.set("question", question);
  if (recording) url.searchParams.set("trace", recording);
  addSettings(url, config);
  return url.href;
}

// Returns the address of the page without any parameter except the theme.
function bareAddress(address) {
  const url = new URL(address);
  url.hash = "";
  const theme = url.searchParams.get("__theme");
  url.search = "";
  if (theme) url.searchParams.set("__theme", theme);
  return url;
}

function addSettings(url, config) {
  for (const key of tables.linked) if (config[key] !== undefined) url.searchParams.set(key, String(config[key]));
}

/** A file name for a run, without an extension: the first words of the prompt and the time of the run. */
export function fileStem({ config, started_at: startedAt }) {
  const words = config.prompt.toLowerCase().match(/[a-z0-9]+/g) ?? [];
  const day = startedAt.replace(/[^0-9]/g, "").slice(0, 14);
  return ["specdemo", ...words.slice(0, 4), day].join("-");
}

/** Have the browser save `content` as a file. */
export function saveFile(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/**
 * A PNG blob of `root` as it is shown, but with the full texts, below a `heading` and above a `caption`. `drawChart(name,
 * size)` resolves to the address of a picture of a chart.
 */
export async function pictureOf(root, { heading, caption }, drawChart) {
  const copy = root.cloneNode(true);
  copy.prepend(element("p", "sd-caption", heading));
  copy.append(element("p", "sd-caption", caption));
  copy.classList.add("sd-picture");
  copy.style.width = `${root.offsetWidth + 2 * IMAGE_PADDING}px`;
  for (const radio of copy.querySelectorAll("input[type=radio]")) {
    radio.toggleAttribute("checked", radio.checked);
    radio.removeAttribute("name"); // in one group with the radio buttons of the page, the copy would clear their choice
  }
  const rounds = root.querySelector(".sd-rounds canvas").toDataURL(); // now, because a run may go on
  for (const node of copy.querySelectorAll("[data-plot]")) node.replaceChildren();
  const holder = element("div", document.body.className, element("style", "", stageRules(document.styleSheets)), copy);
  holder.style.cssText = "position:absolute;left:-9999px;top:0";
  document.body.append(holder);
  const { left, top, width, height } = copy.getBoundingClientRect();
  const placeOf = (node) => {
    const box = node.getBoundingClientRect();
    return { x: box.left - left + node.clientLeft, y: box.top - top + node.clientTop, width: node.clientWidth, height: node.clientHeight };
  };
  const strip = placeOf(copy.querySelector(".sd-rounds canvas"));
  const charts = [...copy.querySelectorAll("[data-plot]")].filter((node) => node.clientWidth);
  const places = charts.map(placeOf);
  holder.remove();
  holder.removeAttribute("style");
  const pen = await drawMarkup(new XMLSerializer().serializeToString(holder), Math.ceil(width), Math.ceil(height));
  // Drawn over the picture of the markup, because Safari shows no pictures within it.
  const draw = (picture, place) => pen.drawImage(picture, place.x, place.y, place.width, place.height);
  if (strip.width) draw(await loaded(rounds), strip);
  for (const [index, { dataset }] of charts.entries()) {
    const { width, height } = places[index];
    draw(await loaded(await drawChart(dataset.plot, { width, height })), places[index]);
  }
  return blobOf(pen.canvas);
}

async function loaded(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  return image;
}

// Returns the rules of the stage that apply now, because a picture cannot load style sheets and has another size.
function stageRules(sheets) {
  const rules = [];
  for (const sheet of sheets) {
    if (sheet.href && !sheet.href.startsWith(location.origin)) continue;
    if (sheet.media?.length && !matchMedia(sheet.media.mediaText).matches) continue;
    for (const rule of sheet.cssRules) {
      if (rule instanceof CSSMediaRule) rules.push(stageRules([rule]));
      else if (/\bsd\b/.test(rule.cssText)) rules.push(rule.cssText);
    }
  }
  return rules.join("\n");
}

/** Resolves to the pen of a canvas with the picture, which draws in the units of the page. */
async function drawMarkup(markup, width, height) {
  const scale = 2;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`;
  const image = await loaded(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`);
  const canvas = document.createElement("canvas");
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.drawImage(image, 0, 0);
  return pen;
}

function blobOf(canvas) {
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the image is too large for this browser"))), "image/png");
  });
}
