// The text box for a draft, and the preview of the draft at the end of the text.

import { element } from "./dom.js";
import { isEmpty, joined, wantsSpace } from "./game.js";
import { fill } from "./tokens.js";

const BORDERS_PX = 2; // which scrollHeight does not include

export class DraftBox {
  constructor({ draft, space, text }, maxChars, onSubmit) {
    this.draft = draft;
    this.space = space;
    this.text = text;
    this.onSubmit = onSubmit;
    this.pending = element("span", "sd-token");
    this.before = ""; // the text that the draft continues
    this.spaced = true;
    draft.maxLength = maxChars;
    draft.addEventListener("input", () => this.preview());
    draft.addEventListener("keydown", (event) => this.key(event));
    space.addEventListener("click", () => this.setSpaced(!this.spaced));
  }

  get isEmpty() {
    return isEmpty(this.draft.value);
  }

  /** The typed draft, with its leading space. */
  get words() {
    return joined(this.before, this.draft.value, this.spaced);
  }

  /** Continue another text. */
  follow(text) {
    this.before = text;
    this.preview();
  }

  /** Start with `draft` in the box and a space in front. */
  open(draft) {
    this.draft.value = draft;
    delete this.pending.dataset.verifying;
    this.setSpaced(true);
  }

  setSpaced(spaced) {
    this.spaced = spaced;
    this.preview();
  }

  preview() {
    const { draft, space, text, pending } = this;
    const canSpace = wantsSpace(this.before, draft.value);
    space.disabled = !canSpace;
    space.setAttribute("aria-pressed", String(canSpace && this.spaced));
    pending.replaceChildren();
    fill(pending, draft.value && this.words, false);
    delete pending.dataset.partial;
    pending.dataset.status = "pending";
    pending.hidden = !draft.value;
    draft.style.height = "auto";
    draft.style.height = `${draft.scrollHeight + BORDERS_PX}px`;
    text.scrollTop = text.scrollHeight;
  }

  key(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.onSubmit();
    } else if (event.key === "Backspace" && !this.draft.value) this.setSpaced(false);
  }

  /** Show a single draft while the target verifies it; hide one of two. */
  showVerifying(players) {
    if (players === 1) this.pending.dataset.verifying = "true";
    else {
      this.draft.value = "";
      this.pending.hidden = true;
    }
  }
}
