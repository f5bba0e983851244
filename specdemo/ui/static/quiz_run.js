// The job that measures a question: which one it is for, and what has come of it. No DOM.

import { GrowingLines } from "./ndjson.js";

/** What a run has told so far, from its events. */
export function resultOf(events) {
  const result = { question: null, place: "", progress: null, error: null, sides: [], verdict: null };
  for (const event of events) {
    if (event.type === "progress") result.progress = event;
    else if (event.type === "error") result.error = event.message;
    else if (event.type === "question") Object.assign(result, { question: event.question, place: event.place });
    else if (event.type === "side") result.sides[event.index] = { label: event.label, figures: event.figures };
    else if (event.type === "verdict") result.verdict = { option: event.option, why: event.why };
  }
  return result;
}

/** One run after the other; `index` is the question (from 0) of the one under way, null between two. */
export class QuizRun {
  constructor() {
    this.lines = new GrowingLines();
    this.index = null;
    this.events = [];
  }

  begin(index) {
    this.index = index;
    this.lines.renew();
    this.events = [];
  }

  /** What has come of the run by now (see `resultOf`); null where `value` has nothing new or none is under way. */
  read(value) {
    const { events } = this.lines.read(value);
    if (this.index === null || !events.length) return null;
    this.events.push(...events);
    return resultOf(this.events);
  }

  /** It is over: whether it came to a verdict or a fault, rather than being stopped. */
  end() {
    this.index = null;
    const { verdict, error } = resultOf(this.events);
    return Boolean(verdict || error);
  }
}
