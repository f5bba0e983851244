// The section of the lab that explains the speedup of another program. The server reads the pasted lines and draws the chart.

import { element, onSubmit, rolesOf } from "../common/dom.js";
import { Chart } from "../common/plotly_chart.js";
import { answerFrom } from "./lab_theory.js";

/** The fields of the form as a request, without the empty ones. */
function explainRequest(fields) {
  const filled = Object.entries(fields).filter(([, text]) => text.trim());
  return Object.fromEntries(filled.map(([name, text]) => [name, name === "text" ? text : Number(text)]));
}

export class DoctorSection {
  constructor(node, base) {
    this.roles = rolesOf(node);
    this.form = node.querySelector("form");
    this.url = new URL("../specdemo-lab/explain", base);
    this.chart = new Chart(this.roles["doctor-chart"], base);
    onSubmit(this.form, () => this.explain());
  }

  async explain() {
    const { roles } = this;
    try {
      const request = explainRequest(Object.fromEntries(new FormData(this.form)));
      const found = await answerFrom(this.url, { method: "POST", body: JSON.stringify(request) });
      const causes = found.causes.map(({ name, reason, measure }) => element("li", "", element("b", "", name), ` ${reason} `, element("i", "", measure)));
      const list = found.sentences.map((sentence) => element("p", "", sentence));
      roles["doctor-answer"].replaceChildren(...list, ...(causes.length ? [element("h3", "", "Likely causes, and what would settle them")] : []), element("ol", "", ...causes));
      roles["doctor-chart"].hidden = !found.chart;
      if (found.chart) await this.chart.show(found.chart);
    } catch (error) {
      roles["doctor-answer"].replaceChildren(element("p", "", error.message));
      roles["doctor-chart"].hidden = true;
    }
  }
}
