// What each lesson asks to be done, and when it has been. Pure; no DOM.

/**
 * Lesson -> how many different steps it takes, and `step(moment)`: the step that a moment of the stage completes,
 * if any. A moment tells the `recording` that is shown, its lane in `focus`, whether it has `ended`, how many rounds
 * are `settled`, the `round` that is open, and whether the lanes stand at the `departure` of the draft alone.
 */
const TASKS = {
  1: { steps: 1, step: ({ recording, focus, ended }) => recording === "five" && focus === "baseline" && ended },
  2: { steps: 1, step: ({ recording, focus, settled }) => recording === "five" && focus !== "baseline" && settled > 0 },
  3: { steps: 1, step: ({ recording, round }) => recording === "editor" && round !== null },
  4: { steps: 1, step: ({ recording, round }) => recording === "story-sampled" && round?.drafted.some(isLuckyGuess) },
  5: { steps: 2, step: ({ recording, ended }) => ["email", "too-long"].includes(recording) && ended && recording },
  6: { steps: 1, step: ({ departure }) => departure },
};

function isLuckyGuess({ status, accept_prob: chance }) {
  return status === "accepted" && chance < 1;
}

/** Which tasks are done; `done` are the lessons whose were, at another visit. */
export class Tasks {
  constructor(done) {
    this.done = new Set(done);
    this.taken = new Map(); // lesson -> steps that have been completed
  }

  /** Take in a moment of the stage while `lesson` is read; whether its task is done by it. */
  take(lesson, moment) {
    const task = TASKS[lesson];
    const step = task?.step(moment);
    if (!step || this.done.has(lesson)) return false;
    const taken = this.taken.get(lesson) ?? new Set();
    this.taken.set(lesson, taken.add(step));
    if (taken.size < task.steps) return false;
    this.done.add(lesson);
    return true;
  }
}
