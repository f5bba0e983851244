// The results that the teacher's and the students' pages show: answers as words and bars, and the verdicts of a game.

import { element } from "../common/dom.js";
import { acceptedCount, readingOrder, verdictSpan } from "../play/play_board.js";
import { LETTERS } from "../learn/quiz_cards.js";
import { Pieces, tokenSpan } from "../stage/tokens.js";
import { sum } from "../stage/charts.js";
import { counted, share } from "../common/words.js";

const MAX_BEST = 12;

/** The number that was typed, with a decimal point or comma; null if it is not a number. */
export function numberIn(typed) {
  const text = typed.trim().replace(",", ".");
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : null;
}

/** An answer in words: an option with its letter, or a number. */
export function answerWords({ kind, options }, answer) {
  return kind === "choice" ? `${LETTERS[answer]}, “${options[answer]}”` : String(answer);
}

/** The result of a revealed question in words. */
export function resultWords(question) {
  const { right, right_answers: count, answered, tolerance, measured, recorded } = question;
  if (right === null) return "No verdict.";
  const within = tolerance ? ` (within ${share(tolerance)})` : "";
  const answer = answerWords(question, right);
  if (recorded) return `No verdict. Recorded answer: ${answer}.`;
  const rated = answered ? ` ${count} of ${answered} were right${within}.` : "";
  return `${measured ? "Measured" : "Answer"}: ${answer}.${rated}`;
}

/**
 * The answers, options with their letters. Each has a bar, unless the counts are still hidden. Once the result is
 * revealed, the right answer is marked.
 */
export function answerList({ bars, options, kind, phase, right }) {
  const shown = bars ?? options.map((label) => ({ label }));
  const total = sum(shown.map(({ count }) => count ?? 0));
  const rows = shown.map(({ label, count }, index) => {
    const isChoice = kind === "choice";
    const text = element("span", "sd-answer-text", ...(isChoice ? [element("b", "", LETTERS[index]), " "] : []), label);
    const row = element("li", "", text);
    if (bars) {
      const bar = element("i", "");
      bar.style.width = `${(100 * count) / Math.max(1, total)}%`;
      row.append(element("span", "sd-answer-bar", bar), element("b", "sd-answer-count", total ? `${count} (${share(count / total)})` : "0"));
    }
    if (isChoice && phase === "revealed" && right === index) row.dataset.right = "true";
    return row;
  });
  const list = element("ul", "sd-answers", ...rows);
  list.setAttribute("aria-label", bars ? "Number of students per answer" : "Answers to choose from");
  return list;
}

/** The results of a game. `own` is the verdict on the student's own draft, or null if there is none. */
export function gameResults(results, own) {
  const pieces = new Pieces();
  pieces.add({ ...results.pieces, ...own?.pieces }, results.specials);
  const parts = [figuresOf(results), element("p", "sd-game-sentence", results.sentence)];
  const addDrafts = (words, ...rows) => parts.push(element("h3", "", words), element("ul", "sd-game-drafts", ...rows));
  if (results.best.length) parts.push(element("p", "sd-game-best", `The best drafts are by ${results.best.join(", ")}.`));
  if (own) addDrafts("Your draft", draftRow(own, pieces));
  if (results.agreed.length) {
    const agreed = { drafted: results.agreed, emission: null };
    addDrafts("Draft of most students", draftRow(agreed, pieces, results.agreed[0].count));
  }
  parts.push(element("h3", "", "Text of the target"), targetText(results.target, pieces));
  addDrafts(results.model_name, draftRow(results.model, pieces));
  const best = results.verdicts.filter(acceptedCount);
  best.sort((one, other) => acceptedCount(other) - acceptedCount(one) || other.count - one.count);
  if (best.length) addDrafts("Best drafts", ...best.slice(0, MAX_BEST).map((verdict) => draftRow(verdict, pieces, verdict.count)));
  return element("div", "sd-game-results", ...parts);
}

function figuresOf({ alpha, model_alpha: modelAlpha, model_name: name, tau }) {
  const figure = (value, words) => element("div", "", element("b", "", value), element("span", "", words));
  return element(
    "div",
    "sd-game-figures",
    figure(share(alpha), "acceptance rate α of the class"),
    figure(share(modelAlpha), `acceptance rate α: ${name.toLowerCase()}`),
    figure(tau === null ? "–" : tau.toFixed(2), "tokens per target pass τ of the class"),
  );
}

function draftRow(round, pieces, students = 1) {
  const words = element("span", "sd-game-words");
  let end;
  for (const token of readingOrder(round)) {
    const made = verdictSpan(token, end, pieces);
    if (token.status !== "discarded") end = made.end;
    words.append(made.span);
  }
  if (round.cut) words.append(element("span", "sd-game-cut", ` (cut after ${counted(round.drafted.length, "token")})`));
  const count = `${acceptedCount(round)} of ${round.drafted.length}`;
  return element("li", "", words, element("b", "", count), element("i", "", students > 1 ? `× ${students}` : ""));
}

function targetText(ids, pieces) {
  const words = element("p", "sd-game-words");
  let end;
  for (const id of ids) {
    const made = tokenSpan(id, end, pieces);
    end = made.end;
    words.append(made.span);
  }
  return words;
}

/** How many answers or drafts are of students who are not here; empty if all are here. */
export function absentWords(absent) {
  return absent ? `, ${absent} from absent students` : "";
}
