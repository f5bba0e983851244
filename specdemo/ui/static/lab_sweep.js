// Measured sweeps: a form, a chart and a table that grow point by point.

import { element, rolesOf } from "./dom.js";
import { Chart } from "./single_chart.js";
import { JobBar } from "./lab_job.js";
import { cellsOf, requestOf } from "./lab_words.js";

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
