// What has been predicted and measured: judged here, and kept in the browser beyond the visit. No DOM.

import { recall, remember } from "./memory.js";

const KEY = "specdemo-quiz";

/** What became of a prediction: right, wrong or too close to call. */
export function judge({ picked, verdict }) {
  if (verdict.option === null) return "close";
  return verdict.option === picked ? "right" : "wrong";
}

/** The answers `{ picked, place, sides, verdict }` to `questions`, those of earlier visits included. */
export class Answers {
  constructor(questions) {
    this.byName = restored(recall(KEY), questions);
  }

  /** The answer to a question, or undefined. */
  of({ name }) {
    return this.byName.get(name);
  }

  all() {
    return [...this.byName.values()];
  }

  keep({ name }, answer) {
    this.byName.set(name, answer);
    this.store();
  }

  clear() {
    this.byName.clear();
    this.store();
  }

  store() {
    remember(KEY, JSON.stringify(Object.fromEntries(this.byName)));
  }
}

/** Answers of earlier visits by the questions' names; whatever does not fit the questions is left out. */
export function restored(text, questions) {
  let kept = {};
  try {
    kept = JSON.parse(text ?? "{}") ?? {};
  } catch {
    // Somebody else's.
  }
  const found = questions.map(({ name, options }) => [name, kept[name], options.length]);
  return new Map(found.filter(([, answer, count]) => fits(answer, count)).map(([name, answer]) => [name, answer]));
}

function fits(answer, count) {
  const isOption = (index) => Number.isInteger(index) && index >= 0 && index < count;
  const { picked, place, sides, verdict } = answer ?? {};
  const isSide = (side) => typeof side?.label === "string" && Array.isArray(side.figures) && side.figures.every(isFigure);
  const isFigure = (figure) => typeof figure?.label === "string" && typeof figure.text === "string";
  const judged = verdict && (verdict.option === null || isOption(verdict.option)) && typeof verdict.why === "string";
  const measured = Array.isArray(sides) && sides.length === 2 && sides.every(isSide);
  return Boolean(isOption(picked) && typeof place === "string" && judged && measured);
}
