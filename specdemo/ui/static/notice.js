// What the page says about a run: the notice above the lanes, and what a screen reader hears.

import { progressBar } from "./dom.js";
import { tabOpener } from "./page.js";
import { named } from "./tokens.js";
import { BASELINE } from "./trace.js";
import { settingWords } from "./words.js";

/** By which rule a run is verified, and who runs where. */
export function runWords(run) {
  return named(settingWords(run));
}

const ROLES = ["hint", "progress", "error", "closing"];

export class Notice {
  constructor(roles) {
    this.roles = roles;
    this.bar = progressBar("Preparing");
    roles.progress.append(this.bar);
    this.begin();
  }

  /** Another run: nothing is waited for, nothing has failed. */
  begin() {
    this.isWaiting = false;
    this.error = null; // what went wrong, in a sentence
  }

  wait({ text, fraction }) {
    this.isWaiting = true;
    this.roles["progress-text"].textContent = text;
    this.bar.value = fraction;
  }

  fail(message) {
    this.error = message;
    this.roles.error.textContent = message;
  }

  /** The run has started: by which rule, and who runs where. */
  open(run) {
    const { hint, arithmetic } = this.roles;
    this.isWaiting = false;
    hint.textContent = runWords(run);
    // What a watched server does not tell, or why the models compute as they do.
    const words = run.watched ? run.watched.silent.join(" ") : (run.arithmetic ?? "");
    arithmetic.textContent = named(words);
    arithmetic.hidden = !words;
  }

  /** What the stage is at: idle, waiting, playing, ended or error; `hasBegun` and `hasEnded` say it of the run. */
  state(hasBegun, hasEnded) {
    if (this.error !== null) return "error";
    if (hasEnded) return "ended";
    return hasBegun ? "playing" : this.isWaiting ? "waiting" : "idle";
  }

  /** Show what a state asks for. */
  show(state) {
    const shown = { error: "error", ended: "closing", waiting: "progress" }[state] ?? "hint";
    for (const role of ROLES) this.roles[role].hidden = role !== shown;
  }

  /** How the run came out; where only the lane in `focus` is seen, what there is to say of that one. */
  close({ sentence, badge, totals }, focus) {
    const { roles } = this;
    const { baseline_tokens: alone } = totals;
    roles.sentence.textContent = focus === BASELINE ? `The target alone: ${alone} tokens, ${alone} passes.` : sentence;
    roles.badge.hidden = !badge || focus === BASELINE;
    roles.badge.dataset.kind = badge?.kind ?? "";
    const words = badge?.text ?? "";
    if (roles.badge.textContent === words) return;
    // No comparison of tokens can show that; the proof of distributions can.
    roles.badge.replaceChildren(badge?.kind === "distribution" ? tabOpener("proof", words) : words);
  }
}

const GAP_MS = 2000;

export class Speaker {
  /** `node` is a polite live region; `clock` stands in for the browser's in tests. */
  constructor(node, clock = browserClock()) {
    this.node = node;
    this.clock = clock;
    this.last = -Infinity;
    this.next = null;
    this.timer = null;
  }

  /** Say it as soon as the gap allows; of several that wait the latest is said. */
  say(words) {
    this.next = words;
    const wait = this.last + GAP_MS - this.clock.now();
    if (wait <= 0) this.sayNow(words);
    else this.timer ??= this.clock.after(wait, () => this.sayNow(this.next));
  }

  /** Say what was asked for, or ends a run; what waits is not said any more. */
  sayNow(words) {
    this.cancel();
    this.last = this.clock.now();
    if (this.node.textContent !== words) this.node.textContent = words;
  }

  /** Nothing to say: another run begins. */
  silence() {
    this.cancel();
    this.node.textContent = "";
  }

  cancel() {
    if (this.timer !== null) this.clock.cancel(this.timer);
    this.timer = null;
    this.next = null;
  }
}

function browserClock() {
  return {
    now: () => performance.now(),
    after: (delay, callback) => setTimeout(callback, delay),
    cancel: (timer) => clearTimeout(timer),
  };
}
