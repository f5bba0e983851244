// One decoder's text: drafted tokens appear as pending, then get their verdict. Draws rounds, counts nothing.

import { baselineTitle, draftTitle, emissionTitle, fill } from "./tokens.js";

const NEAR_END_PX = 48;

export class LaneView {
  constructor(article, pieces) {
    this.box = article.querySelector(".sd-text");
    this.pieces = pieces;
    this.clear();
  }

  clear() {
    this.box.replaceChildren();
    this.tail = undefined; // bytes of a character that the kept text has begun but not finished
    this.forgetDraft();
  }

  forgetDraft() {
    this.draft = []; // of the round being drawn: { span, tail } per drafted token
  }

  setPrompt(text, mode) {
    const prompt = document.createElement("span");
    prompt.className = "sd-prompt";
    prompt.dataset.mode = mode;
    prompt.textContent = text;
    if (mode === "chat") prompt.title = text;
    this.box.append(prompt);
  }

  /** The draft model proposes token `index` of the round. */
  propose(round, index) {
    const before = index ? this.draft[index - 1].tail : this.tail;
    const { span, tail } = this.tokenSpan(round.drafted[index].id, before);
    span.dataset.status = "pending";
    span.title = "pending: drafted, not verified yet";
    this.draft.push({ span, tail });
    this.append(span);
  }

  verifying() {
    for (const { span } of this.draft) span.dataset.verifying = "true";
  }

  /** The target has spoken: every pending token gets its status, and the target adds its own token. */
  settle(round) {
    let kept = this.tail;
    let place = this.box.lastChild;
    round.drafted.forEach((token, index) => {
      const { span, tail } = this.draft[index];
      delete span.dataset.verifying;
      span.dataset.status = token.status;
      if (token.rejected) span.dataset.rejected = "true";
      span.title = draftTitle(token, round);
      if (token.status === "accepted") kept = tail;
      if (token.status === "accepted" || token.rejected) place = span;
    });
    this.tail = kept;
    if (round.emission) this.emit(round.emission, place);
    this.forgetDraft();
  }

  emit(emission, place) {
    const { span, tail } = this.tokenSpan(emission.id, this.tail);
    span.dataset.status = emission.status;
    span.title = emissionTitle(emission);
    this.tail = tail;
    this.keepingEnd(() => place.after(span));
  }

  /** A step of the target alone: one pass, one token. */
  step(round) {
    if (!round.emission) return;
    const { span, tail } = this.tokenSpan(round.emission.id, this.tail);
    span.title = baselineTitle(round.emission);
    this.tail = tail;
    this.append(span);
  }

  tokenSpan(id, before) {
    const { text, tail } = this.pieces.decode(id, before);
    const span = document.createElement("span");
    span.className = "sd-token";
    fill(span, text, this.pieces.specials.has(id));
    return { span, tail };
  }

  append(span) {
    this.keepingEnd(() => this.box.append(span));
  }

  // Follow the text as it grows, unless the reader has scrolled up.
  keepingEnd(change) {
    const { box } = this;
    const following = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
    change();
    if (following) box.scrollTop = box.scrollHeight;
  }
}
