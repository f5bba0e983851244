// The tooltip of a token: follows pointer and keys, stays where it was pinned.

import { element } from "./dom.js";
import { fillLabel } from "./tokens.js";
import { emissionWords, ownStatus, statusName, tokenFigures, verdictWords } from "./words.js";

export class Tip {
  constructor(node, root) {
    this.node = node;
    this.root = root;
    this.pinned = false;
  }

  /** Beside `span`: what became of the token `facts` (`{ entry, token, place }`) speaks of. */
  showToken(span, facts, rule, pieces, onOpen) {
    const { round } = facts.entry;
    const pending = span.dataset.status === "pending";
    const own = facts.place === null;
    const label = element("b", "sd-card-token");
    fillLabel(label, facts.token.id, pieces);
    const status = pending ? "pending" : own ? ownStatus(round) || "target's own" : statusName(facts.token);
    const lane = facts.entry.lane === "speculative" ? `${status} · round ${round.index + 1}` : `token ${round.index + 1}`;
    const words = own ? emissionWords(facts.token, round, rule) : verdictWords(facts.token, round, rule);
    const body = pending ? [element("p", "", "Drafted; the target has not looked at it yet.")] : [element("p", "", words)];
    const figures = own || pending ? [] : tokenFigures(facts.token, round, rule);
    if (figures.length) body.push(element("p", "sd-tip-figures", figureLine(figures)));
    const more = element("button", "sd-button", `Open round ${round.index + 1}`);
    more.type = "button";
    more.addEventListener("click", onOpen);
    if (facts.entry.lane === "speculative") body.push(more);
    this.node.replaceChildren(element("p", "sd-tip-head", label, element("span", "", lane)), ...body);
    this.node.dataset.kind = "token";
    this.placeBy(span.getClientRects()[0] ?? span.getBoundingClientRect());
  }

  /** Beside a tick: the discarded tokens of `round` it stands for. */
  showDiscards(tick, round, pieces) {
    const discarded = round.drafted.filter(({ status }) => status === "discarded");
    const words = discarded.map(({ id, rejected }) => {
      const label = element("b", "sd-card-token");
      fillLabel(label, id, pieces);
      label.dataset.status = "discarded";
      if (rejected) label.dataset.rejected = "true";
      return label;
    });
    const open = tick.parentElement.hasAttribute("data-opened");
    const hint = element("p", "", open ? "A click shrinks them again." : "A click shows them in the text.");
    const head = element("p", "sd-tip-head", element("span", "", `${discarded.length} discarded · round ${round.index + 1}`));
    this.node.replaceChildren(head, element("p", "sd-tip-discards", ...words), hint);
    this.node.dataset.kind = "discards";
    this.placeBy(tick.getBoundingClientRect());
  }

  /** A plain sentence at the pointer. */
  showWords(words, { clientX, clientY }) {
    this.node.replaceChildren(element("p", "", words));
    this.node.dataset.kind = "words";
    this.placeBy({ left: clientX, right: clientX, top: clientY - 12, bottom: clientY + 12 });
  }

  pin() {
    this.pinned = true;
    this.node.dataset.pinned = "true";
  }

  hide() {
    this.pinned = false;
    delete this.node.dataset.pinned;
    this.node.hidden = true;
  }

  // Below the token where there is room, else above; never beyond the stage's edges.
  placeBy(rect) {
    const { node } = this;
    node.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const left = Math.min(Math.max(rect.left, frame.left), frame.right - node.offsetWidth);
    const below = rect.bottom + 6;
    const above = rect.top - node.offsetHeight - 6;
    const top = below + node.offsetHeight <= window.innerHeight || above < 0 ? below : above;
    node.style.left = `${Math.max(0, left - frame.left)}px`;
    node.style.top = `${top - frame.top}px`;
  }
}

function figureLine(figures) {
  return figures.map(([name, value]) => `${name} ${value}`).join(" · ");
}
