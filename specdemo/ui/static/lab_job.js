// What every section that measures has: how far it is, a way to stop it, and what it leaves to take away.

import { element } from "./dom.js";
import { progressBar } from "./progress_bar.js";
import { saveFile } from "./share.js";
import { timeLeft } from "./time_left.js";

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
