// The messages about a run: the notice above the lanes, and the sentences for screen readers.

import { progressBar, write } from "../common/dom.js";
import { tabOpener } from "../common/page.js";
import { counted } from "../common/words.js";
import { BASELINE } from "./trace.js";

const ROLES = ["progress", "error", "closing"];
const GAP_MS = 2000;
const MEANWHILE = ". Meanwhile, a recorded run plays.";

/** The one notice above the lanes: progress, an error, or the closing sentence; and the hint of an empty stage. */
export class Notice {
  constructor(roles) {
    this.roles = roles;
    this.bar = progressBar("Progress");
    roles.progress.append(this.bar);
    this.invitation = null; // the hint of an empty stage, while the captions of a run are in its place
    this.begin();
  }

  begin() {
    if (this.invitation) this.roles.hint.textContent = this.invitation;
    this.invitation = null;
  }

  /** Show a `progress` event; `isReplaying` is true if a recording plays meanwhile. */
  wait(event, isReplaying = false) {
    this.roles["progress-text"].textContent = isReplaying ? event.text + MEANWHILE : event.text;
    this.bar.value = event.fraction;
  }

  /** Show the notices that come with the start of a run, with a sentence for the time before its first verdict. */
  open(words) {
    this.invitation = this.roles.hint.textContent;
    write(this.roles.hint, words);
  }

  show(state) {
    const shown = { error: "error", ended: "closing", waiting: "progress" }[state];
    for (const role of ROLES) this.roles[role].hidden = role !== shown;
    if (shown !== "closing") this.roles.remarks.hidden = true;
  }

  /** Show the result of the run, or only that of the lane in `focus`. */
  close({ sentence, remarks = "", badge, totals }, focus) {
    const { roles } = this;
    roles.remarks.textContent = remarks;
    roles.remarks.hidden = !remarks || focus === BASELINE;
    roles.sentence.textContent = focus === BASELINE ? `The target alone wrote ${counted(totals.baseline_tokens, "token")} in ${counted(totals.baseline_passes, "pass", "passes")}.` : sentence;
    roles.badge.hidden = !badge || focus === BASELINE;
    roles.badge.dataset.kind = badge?.kind ?? "";
    const words = badge?.text ?? "";
    if (roles.badge.textContent === words) return;
    // A run cannot show that two distributions are the same. The badge links to the test that can.
    roles.badge.replaceChildren(badge?.kind === "distribution" ? tabOpener("proof", words) : words);
  }
}

/** A live region for screen readers. It gets the latest sentence, at most one every two seconds. */
export class Speaker {
  constructor(node) {
    this.node = node;
    this.last = -Infinity;
    this.timer = null;
  }

  /** Say the sentence when two seconds have passed since the last one. It replaces a sentence that still waits. */
  say(words) {
    this.next = words;
    const wait = this.last + GAP_MS - Date.now();
    if (wait <= 0) this.sayNow(words);
    else this.timer ??= setTimeout(() => this.sayNow(this.next), wait);
  }

  /** Say the sentence now; it replaces a sentence that still waits. */
  sayNow(words) {
    this.cancel();
    this.last = Date.now();
    write(this.node, words);
  }

  silence() {
    this.cancel();
    this.node.textContent = "";
  }

  cancel() {
    clearTimeout(this.timer);
    this.timer = null;
  }
}
