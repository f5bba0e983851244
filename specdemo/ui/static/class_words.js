// Answers of a class in words, as its teacher and its students read them. No DOM.

import { LETTERS } from "./quiz_words.js";

/** The number that was typed, with a point or a comma; null where it is none. */
export function numberIn(typed) {
  const text = typed.trim().replace(",", ".");
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : null;
}

/** An answer to a question: the option with its letter, or the number. */
export function answerWords({ kind, options }, answer) {
  return kind === "choice" ? `${LETTERS[answer]}, “${options[answer]}”` : String(answer);
}

/** What came out of a question that has been told, and how many were right. */
export function measuredWords(question) {
  const { right, right_answers: count, answered } = question;
  return right === null ? "No verdict." : `Measured: ${answerWords(question, right)}. ${count} of ${answered} were right.`;
}
