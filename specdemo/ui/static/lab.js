// The lab's conductor: one job at a time, whose events go to the section that asked for it.
// Every figure is the server's; the sections only format.

import { BatchSection, ConditionsSection } from "./lab_conditions.js";
import { LearnedSection } from "./lab_learned.js";
import { LastRun } from "./lab_run.js";
import { SweepSection } from "./lab_sweep.js";
import { OracleSection, TheorySection } from "./lab_theory.js";
import { GrowingLines } from "./ndjson.js";

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
    const run = new LastRun(base);
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
