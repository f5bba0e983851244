// The run on the page's stage, and what the server says about it: asked once a run.

import { stageOfPage } from "./stage.js";

const PATH = "../specdemo-lab/run";
export const NO_RUN = "There is no finished run on the page yet: make one under Run, or play a recorded one there.";

export class LastRun {
  constructor(base) {
    this.url = new URL(PATH, base);
    this.trace = null;
  }

  /** `{ point, oracle }` of the finished run on the stage; null where there is none. Throws the server's sentence. */
  async look() {
    const trace = stageOfPage()?.trace;
    if (!trace?.end) return null;
    if (trace !== this.trace) {
      this.trace = trace;
      this.answer = askAboutRun(this.url, trace.file());
    }
    return this.answer;
  }
}

async function askAboutRun(url, file) {
  return answerOf(await fetch(url, { method: "POST", body: JSON.stringify(file) }));
}

/** The JSON of a response, or its sentence thrown. */
export async function answerOf(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server could not be asked (status ${response.status}).`);
  return answer;
}
