// The quiz in words: which option, what became of a prediction, the score. No DOM.

import { judge } from "./quiz_answers.js";

export const LETTERS = "ABCDEF";
/** What became of a prediction, by what `judge` says. */
export const HEADS = { right: "As you predicted.", wrong: "Not as you predicted.", close: "No verdict." };

/** `{ kind, head, words }`: what became of a prediction among `options`, and what was measured instead. */
export function verdictWords(answer, options) {
  const kind = judge(answer);
  const { option } = answer.verdict;
  const measured = kind === "close" ? "" : `Measured: ${LETTERS[option]}, “${options[option]}”.`;
  const words = kind === "wrong" ? `${measured} You said ${LETTERS[answer.picked]}.` : measured;
  return { kind, head: HEADS[kind], words };
}

/** The score in words; `answers` are those there are, of `count` questions. */
export function scoreWords(answers, count) {
  const outcomes = answers.map(judge);
  const right = outcomes.filter((outcome) => outcome === "right").length;
  const close = outcomes.filter((outcome) => outcome === "close").length;
  if (!outcomes.length) return "Nothing answered yet";
  const done = outcomes.length === count ? "All done: " : "";
  return `${done}${right} of ${outcomes.length - close} predicted${close ? `, ${close} too close to call` : ""}`;
}
