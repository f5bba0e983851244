// The lab: one job at a time, whose events go to the section that started it. All figures come from the server.

import { element, progressBar, rolesOf } from "./dom.js";
import { cellsOf, LearnedSection, OracleSection, requestOf, RunOnStage, shownAs, sideWords, TheorySection } from "./lab_theory.js";
import { GrowingLines } from "./ndjson.js";
import { Chart } from "./plotly_chart.js";
import { saveFile } from "./share.js";
import { timeLeft } from "./words.js";

/** Called once by the Gradio component. */
export function mountLab({ element, props, watch, trigger, base, settings }) {
  const root = element.querySelector(".sd-lab");
  const lab = new Lab(root, { base, settings, trigger, value: () => props.value ?? "" });
  root.lab = lab; // where the scripts of lab_tab.py find it
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
    const part = (name) => root.querySelector(`[data-section=${name}]`);
    const run = new RunOnStage(base);
    this.theory = new TheorySection(part("theory"), base, run);
    this.learned = new LearnedSection(part("learned"), base, settings.learns);
    this.oracle = new OracleSection(part("oracle"), base, run);
    const job = { base, settings, start: (section, request) => this.start(section, request), stop: () => trigger("stop") };
    this.jobs = [
      new SweepSection(part("sweep"), job),
      new ConditionsSection(part("conditions"), job),
      new BatchSection(part("throughput"), job),
    ];
  }

  /** What Gradio is to send: the values of the endpoint's inputs; null where one does not matter. */
  values() {
    return this.inputs.map((name) => this.request[name] ?? null);
  }

  start(section, request) {
    if (this.section) return;
    this.feed(); // what is left of the job before
    this.section = section;
    this.request = request;
    this.lines.renew();
    this.free(false);
    section.bar.begin();
    this.trigger("submit");
  }

  /** Have the section whose job it is show what is new; nobody asks for what comes behind the end of a job. */
  feed() {
    for (const event of this.lines.read(this.value()).events) this.section?.take(event);
  }

  /** The job is over, however it ended. */
  settle() {
    setTimeout(() => {
      this.feed();
      this.section?.bar.settle();
      this.section = null;
      this.free(true);
    });
  }

  free(free) {
    for (const button of this.root.querySelectorAll("[data-start]")) button.disabled = !free;
  }
}

const TABLES = { csv: "text/csv", json: "application/json" };

/** The row of a job: behind its start button a Stop, the progress, and the table as files once it is over. */
export class JobBar {
  constructor(node, { name, stop }) {
    this.name = name;
    this.node = node;
    this.stop = jobButton("Stop", stop);
    this.stop.dataset.stop = "";
    this.text = element("span", "sd-job-text");
    this.text.setAttribute("role", "status");
    this.progressBar = progressBar("Progress");
    this.files = element("span", "sd-job-files");
    for (const [kind, type] of Object.entries(TABLES)) {
      const button = jobButton(kind.toUpperCase(), () => saveFile(`${this.fileStem()}.${kind}`, type, this.table[kind]));
      button.setAttribute("aria-label", `Save the table as ${kind.toUpperCase()}`);
      button.dataset.save = kind;
      this.files.append(button);
    }
    node.append(this.stop, this.progressBar, this.text, this.files);
    this.show("idle");
  }

  begin() {
    this.table = null;
    this.show("running");
    this.progress("Waiting for the models", 0);
  }

  /** Every event of a job is shown here; a section shows what else there is in it. */
  take(event) {
    if (event.type === "progress") this.progress(event.text, 0);
    if (event.type === "experiment") {
      this.experiment = event;
      this.began = performance.now();
      this.progress(pointsDone(0, event.expected), 0);
    }
    if (event.type === "point") this.point(event);
    if (event.type === "end") {
      this.table = event;
      this.text.textContent = event.sentence;
    }
    if (event.type === "error") {
      this.show("failed");
      this.text.textContent = event.message;
    }
  }

  point({ done, expected }) {
    const left = timeLeft(done / expected, (performance.now() - this.began) / 1000);
    this.progress(`${pointsDone(done, expected)}${left}`, done / expected);
  }

  /** Nothing more will come. */
  settle() {
    if (this.node.dataset.state === "failed") this.show("failed");
    else {
      this.show("over");
      if (!this.table) this.text.textContent = "Stopped before the first point.";
    }
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

  fileStem() {
    return `specdemo-${this.experiment.name}`;
  }
}

/** How far a job is, in words. */
export function pointsDone(done, expected) {
  return done ? `${done} of ${expected} points` : `Measuring the first of ${expected} points`;
}

function jobButton(text, onClick) {
  const button = element("button", "sd-button", text);
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

const VARIES = { "draft-length": ["k"], temperature: ["temperature"], category: ["prompt", "mode"], drafter: ["k"] };

export class SweepSection {
  constructor(node, { base, settings, start, stop }) {
    this.roles = rolesOf(node);
    this.form = node.querySelector("form");
    this.bar = new JobBar(node.querySelector("[data-job]"), { stop });
    this.chart = new Chart(this.roles["sweep-chart"], base);
    for (const sweep of settings.sweeps) this.roles.sweeps.append(choice(sweep));
    for (const [name, value] of Object.entries(settings.defaults)) this.form.elements[name].value = value;
    for (const [name, value] of Object.entries(settings.limits)) this.form.elements[name].max = value;
    this.form.elements.experiment[0].checked = true;
    this.form.addEventListener("change", () => this.showWhatCounts());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      start(this, requestOf(Object.fromEntries(new FormData(this.form)))); // without what is disabled
    });
    this.showWhatCounts();
  }

  /** What the sweep varies itself cannot be set. */
  showWhatCounts() {
    const ignored = VARIES[this.form.elements.experiment.value] ?? [];
    for (const field of this.form.querySelectorAll(".sd-lab-settings [name]")) field.disabled = ignored.includes(field.name);
  }

  take(event) {
    this.bar.take(event);
    if (event.type === "experiment") this.begin(event);
    if (event.type === "point") {
      const [label, ...figures] = cellsOf(event.point);
      const heading = element("th", "", label);
      heading.scope = "row";
      const cells = figures.map((text, index) => element("td", "", text));
      cells.slice(3).forEach((cell) => (cell.dataset.wide = ""));
      cells[0].toggleAttribute("data-slower", event.point.speedup < 1);
      this.roles["sweep-rows"].append(element("tr", "", heading, ...cells));
      this.chart.show(event.chart);
    }
  }

  begin({ title }) {
    this.roles["sweep-rows"].replaceChildren();
    this.roles["sweep-column"].textContent = title.toLowerCase();
    this.chart.renew();
  }
}

function choice({ name, title }) {
  const input = element("input");
  Object.assign(input, { type: "radio", name: "experiment", value: name });
  return element("label", "", input, element("span", "", title));
}

const ALL_CONDITIONS = "contrasts";
const BATCHES = "throughput";

export class ConditionsSection {
  constructor(node, { base, settings, start, stop }) {
    this.roles = rolesOf(node);
    this.bar = new JobBar(node.querySelector("[data-job]"), { stop });
    this.chart = new Chart(this.roles["conditions-chart"], base);
    node.querySelector("[data-job] [data-start]").addEventListener("click", () => start(this, { experiment: ALL_CONDITIONS }));
    const asked = (name) => start(this, { experiment: name });
    this.cards = new Map(settings.conditions.map((condition) => [condition.name, new ConditionCard(condition, () => asked(condition.name))]));
    for (const group of new Set(settings.conditions.map((condition) => condition.group))) {
      const cards = settings.conditions.filter((condition) => condition.group === group).map(({ name }) => this.cards.get(name).node);
      this.roles.conditions.append(element("section", "", element("h3", "", `It ${group} …`), ...cards));
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
    const button = element("button", "sd-button", "Measure");
    Object.assign(button, { type: "button", onclick: onStart });
    button.dataset.start = "";
    button.setAttribute("aria-label", `Measure: ${title}`);
    this.labels = { helps, hurts };
    this.sides = { helps: conditionSide("helps"), hurts: conditionSide("hurts") };
    this.outcome = element("p", "sd-outcome");
    this.node = element(
      "article",
      "sd-condition",
      element("header", "", element("h4", "", title), button),
      element("p", "", expected),
      element("div", "sd-sides", this.sides.helps.node, this.sides.hurts.node),
      this.outcome,
    );
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
    side.speedup.textContent = shownAs.times(point.speedup);
    [side.label.textContent, side.figures.textContent] = sideWords(point);
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

export class BatchSection {
  constructor(node, { base, start, stop }) {
    this.bar = new JobBar(node.querySelector("[data-job]"), { stop });
    this.chart = new Chart(rolesOf(node)["throughput-chart"], base);
    node.querySelector("[data-start]").addEventListener("click", () => start(this, { experiment: BATCHES }));
  }

  take(event) {
    this.bar.take(event);
    if (event.type === "point") this.chart.show(event.chart);
  }
}
