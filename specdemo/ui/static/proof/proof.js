// The tab "Is it the same?": shows the events of one test. All figures come from the server.

import { element, progressBar, rolesOf } from "../common/dom.js";
import { GrowingLines, parseEvents } from "../common/ndjson.js";
import { noteProof, openTab, tellJob } from "../common/page.js";
import { Chart, plotText } from "../common/plotly_chart.js";
import { blankMarks } from "../stage/tokens.js";
import { BASELINE, SPECULATIVE } from "../stage/trace.js";
import { measuredTimes, percent, timeLeft } from "../common/words.js";

const MIN_P = 1e-99;
const LABEL_LETTERS = 40;
const LABEL_LETTERS_NARROW = 24;
// Two samples are never equal; they can only have the same distribution.
const ALIKE = { same: "distribution", missed: "distribution" };

const OTHERS = "other-libraries";

let mounted = null;

/** Called once by the Gradio component. Shows the recorded proof that the address names, if any. */
export function mountProof({ element: host, props, watch, base, settings }) {
  const view = new ProofView(host.querySelector(".sd-proof"), { base, ...settings });
  const feed = () => view.feed(props.value ?? "");
  watch("value", feed);
  feed();
  mounted = view;
  const asked = new URLSearchParams(location.search).get("proof");
  if (asked && !props.value) view.showRecorded(asked);
}

/** Open the tab with the recorded proof of this name. */
export function showProof(name) {
  openTab("proof");
  noteProof(name);
  mounted?.showRecorded(name); // without a view, the tab shows the proof once it is mounted
}

class ProofView {
  constructor(root, { base, figures }) {
    this.root = root;
    this.base = base;
    this.roles = rolesOf(root);
    for (const node of root.querySelectorAll("[data-recorded]")) node.addEventListener("click", () => showProof(node.dataset.recorded));
    this.lines = new GrowingLines();
    this.progressBar = progressBar("Progress");
    this.roles.progress.append(this.progressBar);
    this.figures = figures;
    this.chart = new Chart(this.roles.chart, base);
  }

  feed(value) {
    const { anew, events } = this.lines.read(value);
    if (anew) {
      this.begin();
      noteProof(null);
    }
    // If several samples arrive together, only the last one is drawn.
    const latest = events.findLast(({ type }) => type === "sample");
    for (const event of events) if (event.type !== "sample" || event === latest) this.take(event);
  }

  /** Show a recorded proof and choose its settings, unless a proof runs or there is no such recording. */
  async showRecorded(name) {
    const response = await fetch(new URL(`proof/recorded/${encodeURIComponent(name)}.ndjson`, this.base));
    if (!response.ok || this.root.dataset.state === "running") return;
    const events = parseEvents(await response.text());
    this.begin();
    for (const event of events) this.take(event);
    const { target, precision, device } = this.start;
    this.roles.recorded.textContent = `Recorded earlier: target ${target}, precision ${precision}, on ${device}.`;
    this.roles.recorded.hidden = false;
    document.querySelector(`.sd-proof-choice input[value="${name}"]`)?.click();
  }

  begin() {
    const { roles } = this;
    this.start = null;
    roles.rows.replaceChildren();
    roles.live.textContent = "";
    for (const role of ["audit", "samples", "reading", "why", "recorded", "error", "verdict", "progress"]) roles[role].hidden = true;
    roles.hint.hidden = false;
    this.root.dataset.state = "idle";
  }

  take(event) {
    const takers = { progress: "progress", error: "fail", start: "open", row: "row", sample: "sample", end: "end" };
    this[takers[event.type]](event);
  }

  progress({ text, fraction }) {
    this.notice("progress");
    this.root.dataset.state = "running";
    this.roles["progress-text"].textContent = text;
    this.progressBar.value = fraction;
  }

  fail({ message }) {
    this.roles.error.textContent = message;
    this.notice("error");
    this.root.dataset.state = "error";
  }

  open(start) {
    this.start = start;
    this.began = performance.now();
    this.root.dataset.rule = start.rule ?? "";
    this.root.dataset.proof = start.proof;
    const audited = start.proof !== "distribution";
    this.roles.audit.hidden = !audited;
    this.roles.samples.hidden = audited;
    this.roles["last-column"].textContent = start.proof === OTHERS ? "Logit gap" : "Speedup";
    this.progress({ text: startWords(start), fraction: 0 });
    if (!audited) this.showFigures({ drawn: 0, draws: start.draws });
    this.root.scrollIntoView({ block: "nearest" }); // on a phone the results are far below the button
  }

  row({ row, sentence }) {
    const { roles, start } = this;
    roles.rows.append(auditRow(row));
    this.advance(sentence.replace(/\.$/, ""), roles.rows.childElementCount / start.prompts);
  }

  sample(event) {
    this.showSamples(event);
    const { drawn, draws } = event;
    this.advance(startWords(this.start), drawn / draws);
  }

  advance(words, fraction) {
    const left = timeLeft(fraction, (performance.now() - this.began) / 1000);
    this.progress({ text: `${words}${left}`, fraction });
  }

  end(event) {
    const { roles } = this;
    if (event.texts) this.showSamples(event);
    roles.words.textContent = event.words;
    roles.words.hidden = !event.words;
    const same = event.texts ? ALIKE[event.verdict] : event.verdict;
    roles.words.dataset.kind = same ?? "different";
    roles.sentence.textContent = event.sentence;
    const explanation = roles[event.texts ? "reading" : "why"];
    explanation.textContent = event.reading ?? "";
    explanation.hidden = !event.reading;
    roles.live.textContent = `${event.words} ${event.sentence}`;
    this.root.dataset.verdict = event.verdict;
    this.root.dataset.state = "ended";
    this.notice("verdict");
  }

  notice(shown) {
    tellJob("proof", shown === "progress" ? "Your proof" : null);
    for (const role of ["progress", "error", "verdict"]) this.roles[role].hidden = role !== shown;
    this.roles.hint.hidden = shown === "progress";
  }

  showSamples(event) {
    this.showFigures(event);
    this.chart.show(this.figures, (figure, narrow) => fillBars(figure, event, narrow ? LABEL_LETTERS_NARROW : LABEL_LETTERS));
  }

  showFigures(event) {
    const shown = figureWords(event, this.start);
    for (const node of this.root.querySelectorAll("[data-figure-of]")) {
      node.textContent = shown[node.dataset.figureOf];
      node.dataset.value = event[node.dataset.figureOf] ?? null;
    }
    for (const role of ["p-words", "alpha-words", "drawn-words", "passes-words", "band-words"]) this.roles[role].textContent = shown[role];
    this.showBand(event);
  }

  showBand(event) {
    const band = bandOf(event);
    const { style } = this.roles.band;
    this.roles.band.toggleAttribute("data-empty", !band);
    for (const [name, share] of Object.entries(band ?? {})) style.setProperty(`--${name}`, `${100 * share}%`);
    this.roles.band.toggleAttribute("data-outside", Boolean(band) && event.total_variation > event.noise_high);
    const words = band ? `${decimals(event.total_variation)}; expected by chance: up to ${decimals(event.noise_high)}` : "No samples yet";
    this.roles.band.setAttribute("aria-label", words);
  }
}

function auditRow(row) {
  const { words, same } = rowWords(row);
  const verdict = element("td", "", words);
  verdict.dataset.same = same;
  const prompt = element("th", "", row.prompt);
  prompt.scope = "row";
  prompt.title = row.prompt;
  const tokens = element("td", "", String(row.tokens), element("span", "sd-proof-unit", " tokens"));
  return element("tr", "", prompt, tokens, verdict, element("td", "", ...lastCell(row)));
}

/** The contents of the last cell of a row: the measured speedup, or how far the two most likely tokens are apart. */
export function lastCell({ speedup, doubt, gap, identical }) {
  if (speedup !== undefined) return [measuredTimes({ totals: { speedup }, doubt })];
  return [`${identical ? "≥ " : ""}${decimals(gap)}`, element("span", "sd-proof-unit", " apart")];
}

/**
 * The result of one prompt, as `{ same, words }`: `same` is true for equal texts; `words` name the first difference.
 */
export function rowWords({ identical, divergence, gap, candidates }) {
  if (identical) return { same: true, words: "identical" };
  if (candidates) return { same: false, words: `differ at token ${divergence + 1}; logits: ${candidateWords(candidates)}` };
  const close = gap === null ? "" : `; the target's two most likely tokens are ${percent(gap)} apart`;
  return { same: false, words: `differ at token ${divergence + 1}${close}` };
}

// The two tokens with their logits in both ways, first the one that was written.
function candidateWords([own, other]) {
  const shown = ({ text }, logit) => `“${blankMarks(text)}” ${logit === null ? "lower" : logit.toFixed(2)}`;
  const alone = [own, other].map((one) => shown(one, one.alone));
  const verified = [other, own].map((one) => shown(one, one.verified));
  return `target alone ${alone.join(", ")}; with drafts ${verified.join(", ")}`;
}

/** A sentence that describes the test that has started. */
export function startWords({ proof, prompts, temperature, max_new_tokens: tokens, draws, prompt, top_k: topK }) {
  if (proof === "distribution") {
    return `Drawing ${tokens} tokens after “${prompt}”, ${thousands(draws)} times with drafts and as many times without drafts (temperature ${temperature}, top-k ${topK})`;
  }
  const how = { greedy: "greedy decoding", [OTHERS]: "greedy decoding as in other libraries" }[proof] ?? `temperature ${temperature}, shared noise`;
  return `Writing ${tokens} tokens after each of ${prompts} prompts, with and without drafts (${how})`;
}

/** A p-value with one or two significant digits. */
export function probability(value) {
  if (value === null || value === undefined) return "–";
  if (value < MIN_P) return "<1e-99";
  return value < 0.001 ? value.toExponential(0) : value.toFixed(value < 0.1 ? 3 : 2);
}

/**
 * Positions on the scale of distances, from 0 to 1: the `mean` and the `high` end of the distances that chance alone
 * causes, and the `mark` of the samples' distance. The scale extends a little beyond all of them. Null before the first
 * samples.
 */
export function bandOf({ total_variation: mark, noise_mean: mean, noise_high: high }) {
  if (mark === undefined) return null;
  const reach = 1.15 * Math.max(mark, 2 * high);
  return { mark: mark / reach, mean: mean / reach, high: high / reach };
}

/** The figures that compare the two samples, in words, by their roles on the page. */
export function figureWords(event, { rule, significance }) {
  const byRule = rule === "accept-everything" ? " under this rule" : "";
  const { drawn, draws, seconds, passes } = event;
  const stopped = drawn < draws && `of ${thousands(draws)} draws`;
  return {
    total_variation: decimals(event.total_variation),
    p_value: probability(event.p_value),
    alpha: event.alpha === null || event.alpha === undefined ? "–" : percent(event.alpha),
    drawn: thousands(drawn),
    passes_saved: thousands(event.passes_saved),
    "p-words": event.p_value === undefined ? "χ² p-value, known at the end" : `χ² p-value; below ${significance}, the difference is significant`,
    "alpha-words": `acceptance rate α${byRule}`,
    "drawn-words": `${stopped || "draws"} per sample${seconds === undefined ? "" : `, in ${seconds.toFixed(1)} s`}`,
    "passes-words": `model passes reused${passes === undefined ? "" : `, ${thousands(passes)} computed`}`,
    "band-words": `expected by chance: about ${decimals(event.noise_mean)}, rarely over ${decimals(event.noise_high)}`,
  };
}

/** Fill in a pair of bars for each of the most frequent continuations, and one pair for all others together. */
export function fillBars({ data, layout }, { texts, others }, longest) {
  const [kinds, ...counts] = others;
  const rows = [...texts];
  if (kinds) rows.push([`${thousands(kinds)} others`, ...counts]);
  const places = rows.map((_, place) => place);
  for (const [column, lane] of [SPECULATIVE, BASELINE].entries()) {
    const customdata = rows.map(([text]) => plotText(text));
    Object.assign(data.find(({ uid }) => uid === lane), { x: rows.map((row) => row[1 + column]), y: places, customdata });
  }
  Object.assign(layout.yaxis, { tickvals: places, ticktext: rows.map(([text]) => plotText(text.trim() || text, longest)) });
}

function thousands(count) {
  return count === undefined ? "–" : count.toLocaleString("en");
}

function decimals(value) {
  return value === undefined ? "–" : value.toFixed(3);
}
