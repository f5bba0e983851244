// The lab. It runs one job at a time, and passes the job's events to the section that started it. The server computes
// all figures.

import { button, element, onSubmit, progressBar, rolesOf } from "../common/dom.js";
import { DoctorSection } from "./lab_doctor.js";
import { OracleSection, RunOnStage, TheorySection } from "./lab_theory.js";
import { WhatIfSection } from "./lab_what_if.js";
import { tellJob } from "../common/page.js";
import { GrowingLines } from "../common/ndjson.js";
import { Chart } from "../common/plotly_chart.js";
import { saveFile } from "../stage/share.js";
import { isSlower, share, timeLeft, times } from "../common/words.js";

const ALL_CONDITIONS = "contrasts";
const BATCHES = "throughput";
const TABLES = { csv: "text/csv", json: "application/json" };
const VARIES = { "draft-length": ["k"], temperature: ["temperature"], category: ["prompt", "mode"], drafter: ["k"] };
const NUMBER_FIELDS = ["max_new_tokens", "prompts", "k", "temperature"];

/** Called once by the Gradio component. */
export function mountLab({ element: host, props, watch, trigger, base, settings }) {
  const root = host.querySelector(".sd-lab");
  const lab = new Lab(root, { base, settings, trigger, value: () => props.value ?? "" });
  root.lab = lab; // for the scripts of tabs/lab.py
  watch("value", () => lab.feed());
}

class Lab {
  constructor(root, { base, settings, trigger, value }) {
    this.root = root;
    this.inputs = settings.inputs;
    this.trigger = trigger;
    this.value = value;
    this.lines = new GrowingLines();
    this.section = null;
    for (const slider of root.querySelectorAll("[data-slider=k], [data-slider=length]")) slider.max = settings.limits.k;
    const part = (name) => root.querySelector(`[data-section=${name}]`);
    const run = new RunOnStage(base);
    this.theory = new TheorySection(part("theory"), base, run, settings.figures.theory);
    this.whatIf = new WhatIfSection(part("what-if"), base, run, settings.figures["what-if"]);
    this.oracle = new OracleSection(part("oracle"), base, run);
    this.doctor = new DoctorSection(part("doctor"), base);
    const job = { base, settings, start: (section, request) => this.start(section, request), stop: () => trigger("stop") };
    this.jobs = [
      new SweepSection(part("sweep"), job),
      new ConditionsSection(part("conditions"), job),
      new BatchSection(part("throughput"), job),
    ];
  }

  /** The values of the endpoint's inputs, which Gradio sends; null for an input that the request does not set. */
  values() {
    return this.inputs.map((name) => this.request[name] ?? null);
  }

  start(section, request) {
    if (this.section) return;
    this.feed(); // take the last events of the previous job first
    this.section = section;
    this.request = request;
    tellJob("lab", "Your measurement");
    this.lines.renew();
    this.free(false);
    section.bar.begin();
    this.trigger("submit");
  }

  /** Pass new events to the section of the current job; events after the job's end are ignored. */
  feed() {
    for (const event of this.lines.read(this.value()).events) this.section?.take(event);
  }

  /** End the current job, whether it succeeded, failed or was stopped. */
  settle() {
    setTimeout(() => {
      this.feed();
      this.section?.bar.settle();
      this.section = null;
      tellJob("lab", null);
      this.free(true);
    });
  }

  free(free) {
    for (const node of this.root.querySelectorAll("[data-start]")) node.disabled = !free;
  }
}

/**
 * The row next to a start button: Stop and the progress while the job runs, and buttons to save its table afterwards.
 */
class JobBar {
  constructor(node, stop) {
    this.node = node;
    this.stop = button("sd-button", "Stop", stop);
    this.stop.dataset.stop = "";
    this.text = element("span", "sd-job-text");
    this.text.setAttribute("role", "status");
    this.progressBar = progressBar("Progress");
    this.files = element("span", "sd-job-files");
    for (const [kind, type] of Object.entries(TABLES)) {
      const save = () => saveFile(`specdemo-${this.experiment.name}.${kind}`, type, this.table[kind]);
      const saver = button("sd-button", kind.toUpperCase(), save);
      saver.setAttribute("aria-label", `Save the table as ${kind.toUpperCase()}`);
      saver.dataset.save = kind;
      this.files.append(saver);
    }
    node.append(this.stop, this.progressBar, this.text, this.files);
    this.show("idle");
  }

  begin() {
    this.table = null;
    this.show("running");
    this.progress("Waiting for the models", 0);
  }

  take(event) {
    if (event.type === "progress") this.progress(event.text, 0);
    if (event.type === "experiment") {
      this.experiment = event;
      this.began = performance.now();
      this.progress(pointsDone(0, event.expected), 0);
    }
    if (event.type === "point") {
      const fraction = event.done / event.expected;
      const left = timeLeft(fraction, (performance.now() - this.began) / 1000);
      this.progress(`${pointsDone(event.done, event.expected)}${left}`, fraction);
    }
    if (event.type === "end") {
      this.table = event;
      this.text.textContent = event.sentence;
    }
    if (event.type === "error") {
      this.show("failed");
      this.text.textContent = event.message;
    }
  }

  /** Show that the job has ended. */
  settle() {
    if (this.node.dataset.state === "failed") return this.show("failed");
    this.show("over");
    if (!this.table) this.text.textContent = "Stopped before the first point was measured.";
  }

  progress(text, fraction) {
    this.text.textContent = text;
    this.progressBar.value = fraction;
  }

  show(state) {
    this.node.dataset.state = state;
    this.stop.hidden = this.progressBar.hidden = state !== "running";
    this.text.hidden = state === "idle";
    this.files.hidden = state === "running" || !this.table || !this.table.csv.trim();
  }
}

/** The progress of a job in words. */
export function pointsDone(done, expected) {
  return done ? `${done} of ${expected} points` : `Measuring the first of ${expected} points`;
}

/** The section of sweeps: a form, and a chart and a table that grow with each measured point. */
class SweepSection {
  constructor(node, { base, settings, start, stop }) {
    this.roles = rolesOf(node);
    this.form = node.querySelector("form");
    this.bar = new JobBar(node.querySelector("[data-job]"), stop);
    this.chart = new Chart(this.roles["sweep-chart"], base);
    for (const { name, title } of settings.sweeps) {
      const input = element("input");
      Object.assign(input, { type: "radio", name: "experiment", value: name });
      this.roles.sweeps.append(element("label", "", input, element("span", "", title)));
    }
    for (const [name, value] of Object.entries(settings.defaults)) this.form.elements[name].value = value;
    for (const [name, value] of Object.entries(settings.limits)) this.form.elements[name].max = value;
    this.form.elements.experiment[0].checked = true;
    this.form.addEventListener("change", () => this.disableVaried());
    // FormData leaves out disabled fields.
    onSubmit(this.form, () => start(this, requestOf(Object.fromEntries(new FormData(this.form)))));
    this.disableVaried();
  }

  // Disables the field of the setting that the chosen sweep varies.
  disableVaried() {
    const varied = VARIES[this.form.elements.experiment.value] ?? [];
    for (const field of this.form.querySelectorAll(".sd-lab-settings [name]")) field.disabled = varied.includes(field.name);
  }

  take(event) {
    this.bar.take(event);
    if (event.type === "experiment") {
      this.roles["sweep-rows"].replaceChildren();
      this.roles["sweep-column"].textContent = event.title.toLowerCase();
      this.chart.renew();
    }
    if (event.type === "point") {
      const [label, ...figures] = cellsOf(event.point);
      const heading = element("th", "", label);
      heading.scope = "row";
      const cells = figures.map((text) => element("td", "", text));
      for (const cell of cells.slice(3)) cell.dataset.wide = "";
      cells[0].toggleAttribute("data-slower", isSlower(event.point.speedup));
      this.roles["sweep-rows"].append(element("tr", "", heading, ...cells));
      this.chart.show(event.chart);
    }
  }
}

/** The measured speedup of a point, with the doubt about it. */
function measuredSpeedup({ speedup, disturbed }) {
  return times(speedup) + (disturbed ? " (disturbed)" : "");
}

/** The cells of a measured point, in the order of the table's columns. */
export function cellsOf(point) {
  const { label, s_theory: theory, alpha, tau, tokens_per_s: rate, baseline_tokens_per_s: alone } = point;
  const fixed = (value, digits) => (value === null ? "–" : value.toFixed(digits));
  return [label, measuredSpeedup(point), times(theory), share(alpha), fixed(tau, 2), fixed(rate, 1), fixed(alone, 1)];
}

/**
 * A form's fields, which are all texts, as a request; the server refuses a text that is no number where it needs one.
 */
export function requestOf(fields) {
  const isNumber = (name, text) => NUMBER_FIELDS.includes(name) && text.trim() && !Number.isNaN(Number(text));
  return Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, isNumber(name, text) ? Number(text) : text]));
}

/** The section of the conditions, each with a button and its two sides: one that helps and one that hurts. */
class ConditionsSection {
  constructor(node, { base, settings, start, stop }) {
    this.roles = rolesOf(node);
    this.bar = new JobBar(node.querySelector("[data-job]"), stop);
    this.chart = new Chart(this.roles["conditions-chart"], base);
    const measure = (name) => start(this, { experiment: name });
    node.querySelector("[data-job] [data-start]").addEventListener("click", () => measure(ALL_CONDITIONS));
    const { conditions } = settings;
    this.cards = new Map(conditions.map((condition) => [condition.name, new ConditionCard(condition, () => measure(condition.name))]));
    for (const group of new Set(conditions.map((condition) => condition.group))) {
      const members = conditions.filter((condition) => condition.group === group);
      const cards = members.map(({ name }) => this.cards.get(name).node);
      const section = element("section", "", element("h3", "", `Speculative decoding ${group}:`), ...cards);
      section.style.gridRow = `span ${section.children.length}`; // neighbouring cards have the same height
      this.roles.conditions.append(section);
    }
  }

  take(event) {
    this.bar.take(event);
    if (event.type === "experiment") {
      for (const [name, card] of this.cards) if ([name, ALL_CONDITIONS].includes(event.name)) card.clear();
    }
    if (event.type !== "point") return;
    this.cards.get(event.point.contrast).show(event.point, event.outcome);
    if (!event.chart) return;
    this.roles["conditions-chart"].hidden = false;
    this.chart.show(event.chart);
  }
}

class ConditionCard {
  constructor({ name, title, expected, helps, hurts }, onStart) {
    const start = button("sd-button", "Measure", onStart);
    start.dataset.start = "";
    start.setAttribute("aria-label", `Measure: ${title}`);
    this.labels = { helps, hurts };
    this.sides = { helps: conditionSide("helps"), hurts: conditionSide("hurts") };
    this.outcome = element("p", "sd-outcome");
    this.node = element(
      "article",
      "sd-condition",
      element("header", "", element("h4", "", title), start),
      element("p", "", expected),
      element("div", "sd-sides", this.sides.helps.node, this.sides.hurts.node),
      this.outcome,
    );
    this.node.dataset.section = name; // an address can name it
    this.node.dataset.condition = name;
    this.clear();
  }

  clear() {
    for (const [side, { speedup, label, figures }] of Object.entries(this.sides)) {
      speedup.textContent = "–";
      label.textContent = this.labels[side];
      figures.textContent = "";
    }
    this.outcome.textContent = "";
    delete this.outcome.dataset.kind;
  }

  show(point, outcome) {
    const side = this.sides[point.side];
    side.speedup.textContent = times(point.speedup);
    side.label.textContent = point.label;
    side.figures.textContent = sideFigures(point);
    if (!outcome) return;
    this.outcome.textContent = outcome.text;
    this.outcome.dataset.kind = outcome.kind;
  }
}

function conditionSide(side) {
  const [speedup, label, figures] = [element("b"), element("span"), element("small")];
  const node = element("div", "", speedup, label, figures);
  node.dataset.side = side;
  return { node, speedup, label, figures };
}

/** The figures below a side's speedup. */
export function sideFigures({ alpha, tau, c, disturbed }) {
  const pairs = [["α", share(alpha)], ["τ", tau === null ? "–" : tau.toFixed(2)], ["c", c === null ? "–" : Number(c.toPrecision(2))]];
  return [...pairs.map((pair) => pair.join("\u00a0")), ...(disturbed ? ["disturbed"] : [])].join(" · ");
}

class BatchSection {
  constructor(node, { base, start, stop }) {
    this.bar = new JobBar(node.querySelector("[data-job]"), stop);
    this.chart = new Chart(rolesOf(node)["throughput-chart"], base);
    node.querySelector("[data-start]").addEventListener("click", () => start(this, { experiment: BATCHES }));
  }

  take(event) {
    this.bar.take(event);
    if (event.type === "point") this.chart.show(event.chart);
  }
}
