// Answers of a class as bars: how many gave each, and which is right. No answer of any one student.

import { element } from "./dom.js";

/** `question` has `bars` (`label`, `count`), `kind`, `phase` and, once it is told, `right`. */
export function answerBars({ bars, kind, phase, right }) {
  const most = Math.max(1, ...bars.map(({ count }) => count));
  const rows = bars.map(({ label, count }, index) => {
    const bar = element("i", "");
    bar.style.width = `${(100 * count) / most}%`;
    const row = element("li", "", element("span", "", label), element("span", "sd-answer-bar", bar), element("b", "", String(count)));
    if (kind === "choice" && phase === "told" && right === index) row.dataset.right = "true";
    return row;
  });
  const list = element("ul", "sd-answers", ...rows);
  list.setAttribute("aria-label", "How many gave each answer");
  return list;
}
