// What became of a class's drafts: figures, what most agreed on, and drafts coloured by the verdicts they got.

import { element } from "./dom.js";
import { Pieces, tokenSpan } from "./tokens.js";

const MOST_SHOWN = 12;

/** `results` as the server tells them; `own` is the verdict on one's own draft, null where there is none. */
export function gameResults(results, own) {
  const pieces = new Pieces();
  pieces.add({ ...results.pieces, ...own?.pieces }, results.specials);
  const parts = [figuresOf(results), element("p", "sd-game-sentence", results.sentence)];
  if (results.best.length) parts.push(element("p", "sd-game-best", `By ${results.best.join(", ")}.`));
  if (own) parts.push(heading("Yours"), list([row(own, pieces, "")]));
  if (results.agreed.length) parts.push(heading("Most of the class agreed on"), list([row({ drafted: results.agreed, emission: null, cut: "" }, pieces, `× ${results.agreed[0].count}`)]));
  parts.push(heading("The target writes"), plain(results.target, pieces));
  parts.push(heading(results.model_name), list([row(results.model, pieces, "")]));
  const ranked = results.verdicts.map((verdict) => [kept(verdict), verdict]).filter(([count]) => count);
  ranked.sort(([count, one], [others, other]) => others - count || other.count - one.count);
  const best = ranked.slice(0, MOST_SHOWN).map(([, verdict]) => row(verdict, pieces, verdict.count > 1 ? `× ${verdict.count}` : ""));
  if (best.length) parts.push(heading("The drafts kept longest"), list(best));
  return element("div", "sd-game-results", ...parts);
}

function figuresOf({ alpha, model_alpha: modelAlpha, model_name: name, tau }) {
  const figure = (value, words) => element("div", "", element("b", "", value), element("span", "", words));
  const share = (rate) => (rate === null ? "–" : `${Math.round(100 * rate)}%`);
  return element(
    "div",
    "sd-game-figures",
    figure(share(alpha), "of the class's compared tokens accepted (α)"),
    figure(share(modelAlpha), `of the ${name.toLowerCase()}'s, here`),
    figure(tau === null ? "–" : tau.toFixed(2), "tokens per target pass with the class's drafts (τ)"),
  );
}

function heading(words) {
  return element("h3", "", words);
}

function list(rows) {
  return element("ul", "sd-game-drafts", ...rows);
}

function kept({ drafted }) {
  return drafted.filter(({ status }) => status === "accepted").length;
}

// A draft in reading order, as in a lane: what stayed, what was refused, the target's own, what fell with it.
function row(round, pieces, note) {
  const { drafted, emission } = round;
  const upright = drafted.filter(({ status, rejected }) => status === "accepted" || rejected).length;
  const words = element("span", "sd-game-words");
  let end;
  const put = (token) => {
    const made = tokenSpan(token.id, end, pieces);
    if (token.status !== "discarded") end = made.end;
    made.span.dataset.status = token.status;
    if (token.rejected) made.span.dataset.rejected = "true";
    words.append(made.span);
  };
  for (const token of [...drafted.slice(0, upright), ...(emission ? [emission] : []), ...drafted.slice(upright)]) put(token);
  if (round.cut) words.append(element("span", "sd-game-cut", " (its end was cut)"));
  return element("li", "", words, element("b", "", `${kept(round)} of ${drafted.length}`), element("i", "", note));
}

function plain(ids, pieces) {
  const words = element("p", "sd-game-words");
  let end;
  for (const id of ids) {
    const made = tokenSpan(id, end, pieces);
    end = made.end;
    words.append(made.span);
  }
  return words;
}
