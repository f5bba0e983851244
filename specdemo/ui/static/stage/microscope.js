// The microscope shows each draft token of a round: p, q, the random number, both models' top five and the verdict.
// Its sentences are in words.js.

import { element } from "../common/dom.js";
import { overlapFigure, overlapRows } from "./overlap.js";
import { fillLabel } from "./tokens.js";
import { decimal, emissionWords, hasResidual, isCopied, rankWords, ownStatus, percent, roundWords, ruleName, statusName, timeWords, tokenFigures, verdictWords } from "../common/words.js";

const GREEDY_FIGURES = "p and q are probabilities at temperature 1; greedy chooses the most likely token";

export class Microscope {
  constructor(panel, { onClose, onStep }) {
    this.panel = panel;
    this.title = panel.querySelector("[data-role=microscope-title]");
    this.cards = panel.querySelector("[data-role=microscope-cards]");
    panel.querySelector("[data-role=microscope-close]").addEventListener("click", onClose);
    panel.querySelector("[data-role=microscope-back]").addEventListener("click", () => onStep(-1));
    panel.querySelector("[data-role=microscope-on]").addEventListener("click", () => onStep(1));
  }

  get open() {
    return !this.panel.hidden;
  }

  /** Show a round. `place` is the index of the draft token to mark, "own" for the target's own token, or undefined. */
  show(entry, rule, pieces, place) {
    const { round } = entry;
    const by = round.emission?.prob === null ? "" : `Rule: ${ruleName(rule)}; `;
    this.title.textContent = `${roundWords(round)} ${by}${timeWords(round)}.`;
    this.title.title = rule === "greedy" ? GREEDY_FIGURES : "";
    const cards = round.drafted.map((token, index) => draftCard(token, index, round, rule, pieces));
    if (round.emission) cards.push(emissionCard(round, rule, pieces));
    const chosen = place === "own" ? cards.at(-1) : cards[place];
    chosen?.setAttribute("data-chosen", "");
    this.cards.replaceChildren(...cards);
    this.panel.hidden = false;
    if (chosen) this.cards.scrollLeft = chosen.offsetLeft - this.cards.offsetLeft - 12;
  }

  hide() {
    this.panel.hidden = true;
  }
}

function draftCard(token, index, round, rule, pieces) {
  const caption = `${statusName(token)} · ${index + 1}/${round.drafted.length}`;
  const card = cardWith(token, token.status, caption, pieces);
  card.dataset.verdict = statusName(token);
  card.append(figureList(tokenFigures(token, round, rule)));
  const isDrawn = token.accept_prob !== null && token.compared && hasResidual(rule);
  const isOverlap = isDrawn && rule === "rejection" && token.target_top.length > 0; // the other rules do not compare u with p/q
  if (isDrawn && !isOverlap) card.append(coinBar(token));
  card.append(element("p", "sd-verdict", verdictWords(token, round, rule)));
  if (isOverlap) {
    card.append(overlapFigure(overlapRows(token, isCopied(round)), token.u, ({ id }) => labelOf(id, pieces)));
    return card;
  }
  const drafts = isCopied(round) ? [] : topBars("draft's top five", "q", token.draft_top, token.id, pieces);
  card.append(element("div", "sd-tops", ...drafts, ...topBars("target's top five", "p", token.target_top, token.id, pieces)));
  return card;
}

function emissionCard(round, rule, pieces) {
  const { emission } = round;
  const residual = hasResidual(rule) && emission.residual_mass !== null;
  const status = ownStatus(round);
  const card = cardWith(emission, status, status || "target's own", pieces);
  card.dataset.verdict = status || "own";
  const probability = percent(rule === "greedy" || emission.prob === null ? emission.raw_prob : emission.prob);
  const figures = residual
    ? [["share", probability, "probability in the residual distribution"], ["mass", decimal(emission.residual_mass), `mass of the residual, Σ max(0, ${rule === "block" ? "w·p" : "p"} − q)`]]
    : [["p", probability, "target probability"]];
  if (emission.noise !== null) figures.push(["noise g", decimal(emission.noise), "Gumbel noise of this token at this position"]);
  card.append(figureList(figures), element("p", "sd-verdict", emissionWords(emission, round, rule)));
  const rank = rankWords(round);
  if (rank) card.append(element("p", "sd-verdict", rank));
  const heading = residual ? "residual's top five" : "target's top five";
  card.append(element("div", "sd-tops", ...topBars(heading, residual ? "r" : "p", emission.top, emission.id, pieces)));
  return card;
}

function labelOf(id, pieces) {
  const label = element("span", "sd-top-token");
  fillLabel(label, id, pieces);
  return label;
}

function cardWith(token, status, caption, pieces) {
  const label = element("span", "sd-card-token");
  fillLabel(label, token.id, pieces);
  if (status) label.dataset.status = status;
  if (token.rejected) label.dataset.rejected = "true";
  return element("article", "sd-card", element("header", "", label, element("span", "", caption)));
}

function figureList(figures) {
  const list = element("dl", "sd-card-figures");
  for (const [name, value, meaning] of figures) {
    const row = element("div", "", element("dt", "", name), element("dd", "", value));
    row.title = meaning;
    list.append(row);
  }
  return list;
}

/** A bar filled up to the acceptance probability, with a line at the random number. */
function coinBar(token) {
  const bar = element("div", "sd-coin", element("i"));
  bar.setAttribute("role", "img");
  const drawn = token.u === null ? "no random number drawn" : `random number ${decimal(token.u)}`;
  bar.setAttribute("aria-label", `accepted below ${decimal(token.accept_prob)}; ${drawn}`);
  bar.style.setProperty("--share", token.accept_prob);
  if (token.u !== null) {
    bar.append(element("b"));
    bar.style.setProperty("--coin", token.u);
  }
  return bar;
}

/** A model's five most likely tokens at most, each with a bar from 0 to 1; empty if the run reports none. */
function topBars(heading, symbol, top, chosen, pieces) {
  if (!top.length) return [];
  const rows = top.map(([id, probability]) => {
    const row = element("li", "", labelOf(id, pieces), element("span", "", percent(probability)));
    row.style.setProperty("--share", probability);
    row.toggleAttribute("data-chosen", id === chosen);
    return row;
  });
  const list = element("ol", "", ...rows);
  list.dataset.symbol = symbol;
  return [element("section", "sd-top", element("h4", "", heading), list)];
}
