// The box a player drafts in, and what is typed there as it would stand in the text.

import { element } from "./dom.js";
import { isEmpty, joined, wantsSpace } from "./game.js";
import { fill } from "./tokens.js";

const ROUND_UP_PX = 2; // borders of the box, which its own height does not count

export class DraftBox {
  /** Of the roles it needs `draft` and `space`, and `text`, which it keeps scrolled to the draft at its end. */
  constructor({ draft, space, text }, mostChars, onSubmit) {
    this.draft = draft;
    this.space = space;
    this.text = text;
    this.onSubmit = onSubmit;
    this.pending = element("span", "sd-token");
    this.behind = ""; // the text that is drafted on
    this.spaced = true;
    draft.maxLength = mostChars;
    draft.addEventListener("input", () => this.preview());
    draft.addEventListener("keydown", (event) => this.key(event));
    space.addEventListener("click", () => this.setSpaced(!this.spaced));
  }

  get isEmpty() {
    return isEmpty(this.draft.value);
  }

  /** What has been typed, with the space before it if there is to be one. */
  get words() {
    return joined(this.behind, this.draft.value, this.spaced);
  }

  /** The text has become longer, or another one. */
  follow(text) {
    this.behind = text;
    this.preview();
  }

  /** For the next player: with `draft` in it, and a space before. */
  open(draft) {
    this.draft.value = draft;
    delete this.pending.dataset.verifying;
    this.setSpaced(true);
  }

  setSpaced(spaced) {
    this.spaced = spaced;
    this.preview();
  }

  /** The draft as it would stand in the text. */
  preview() {
    const { draft, space, text, pending } = this;
    const open = wantsSpace(this.behind, draft.value);
    space.disabled = !open;
    space.setAttribute("aria-pressed", String(open && this.spaced));
    pending.replaceChildren();
    fill(pending, draft.value && this.words, false);
    delete pending.dataset.partial;
    pending.dataset.status = "pending";
    pending.hidden = !draft.value;
    draft.style.height = "auto";
    draft.style.height = `${draft.scrollHeight + ROUND_UP_PX}px`;
    text.scrollTop = text.scrollHeight;
  }

  key(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.onSubmit();
    } else if (event.key === "Backspace" && !this.draft.value) this.setSpaced(false);
  }

  /** Nothing changes while the target reads; the box keeps the focus. */
  hold(held) {
    this.draft.readOnly = held;
  }

  /** The only draft stays in sight while the target reads it. */
  showVerifying() {
    this.pending.dataset.verifying = "true";
  }

  /** One of two drafts is out of sight while the target reads both. */
  hide() {
    this.draft.value = "";
    this.pending.hidden = true;
  }

  clear() {
    this.draft.value = "";
  }

  focus() {
    this.draft.focus();
  }
}
