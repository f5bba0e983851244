// The eight conditions, each with a button and both its sides, and the batches: jobs of one button.

import { element, rolesOf } from "./dom.js";
import { Chart } from "./single_chart.js";
import { JobBar } from "./lab_job.js";
import { shownAs, sideWords } from "./lab_words.js";

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
