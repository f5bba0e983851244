// The "?" beside a figure: a press opens what it means and its numbers in this run; Escape or a press elsewhere closes.

import { element } from "./dom.js";
import { helpOn, termName } from "./help_words.js";

const ID = "sd-help";
const EDGE_PX = 8;

export class Helps {
  /** Every button of `root` with a term in `data-help` opens that term, whenever it came to be there. */
  constructor(root) {
    this.root = root;
    this.button = null;
    this.totals = null;
    this.run = null;
    this.panel = element("div", "sd-help");
    this.panel.id = ID;
    this.panel.setAttribute("role", "note");
    root.addEventListener("click", (event) => this.press(event.target));
    document.addEventListener("pointerdown", (event) => this.leave(event.target));
    document.addEventListener("focusin", (event) => this.leave(event.target));
    // Ahead of all others whom Escape tells something: one press closes one thing.
    document.addEventListener("keydown", (event) => this.escape(event), true);
    for (const moved of ["scroll", "resize"]) window.addEventListener(moved, () => this.close());
  }

  /** The figures of the moment shown (null before the first round) and the run they are of. */
  show(totals, run) {
    if (totals === this.totals && run === this.run) return;
    this.totals = totals;
    this.run = run;
    if (this.button) this.fill();
  }

  press(target) {
    const more = target.closest?.("[data-more]");
    if (more) return this.turnTo(more.dataset.more);
    const button = target.closest?.("[data-help]");
    if (!button) return;
    if (button === this.button) this.close();
    else this.open(button);
  }

  open(button) {
    this.close();
    this.button = button;
    this.term = button.dataset.help;
    button.setAttribute("aria-expanded", "true");
    button.setAttribute("aria-controls", ID);
    button.after(this.panel);
    this.fill();
  }

  /** Another term in the same place. */
  turnTo(term) {
    this.term = term;
    this.fill();
    this.panel.querySelector("button").focus();
  }

  fill() {
    const { title, sentence, formula, numbers, more } = helpOn(this.term, this.totals, this.run);
    const turns = more.map((term) => {
      const turn = element("button", "sd-opener", termName(term));
      turn.type = "button";
      turn.dataset.more = term;
      return turn;
    });
    const words = [element("b", "", title), element("p", "", sentence)];
    const figures = [element("p", "sd-help-formula", formula), element("p", "sd-help-numbers", numbers)];
    const held = this.panel.contains(document.activeElement) ? document.activeElement.dataset.more : null;
    this.panel.replaceChildren(...words, ...figures, element("p", "sd-help-more", ...turns));
    this.panel.setAttribute("aria-label", title);
    turns.find((turn) => turn.dataset.more === held)?.focus();
    this.place();
  }

  // Below the button where there is room, else above; never beyond the window.
  place() {
    const { panel } = this;
    const from = this.button.getBoundingClientRect();
    const left = Math.min(from.left, window.innerWidth - panel.offsetWidth - EDGE_PX);
    const below = from.bottom + 4;
    const above = from.top - panel.offsetHeight - 4;
    const fits = below + panel.offsetHeight <= window.innerHeight - EDGE_PX || above < EDGE_PX;
    panel.style.left = `${Math.max(EDGE_PX, left)}px`;
    panel.style.top = `${fits ? below : above}px`;
  }

  close() {
    if (!this.button) return;
    this.button.setAttribute("aria-expanded", "false");
    this.button.removeAttribute("aria-controls");
    this.button = null;
    this.panel.remove();
  }

  leave(target) {
    if (this.button && !this.panel.contains(target) && !this.button.contains(target)) this.close();
  }

  escape(event) {
    if (event.key !== "Escape" || !this.button) return;
    const { button } = this;
    this.close();
    button.focus();
    event.preventDefault();
    event.stopPropagation();
  }
}
