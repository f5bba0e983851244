// Reads a run's NDJSON as it grows and conducts lanes, figures and plots. Computes no figure itself.

import { clearFigures, labelsOf, showFigures } from "./figures.js";
import { LaneView } from "./lanes.js";
import { Player } from "./player.js";
import { Plots } from "./plots.js";
import { Pieces } from "./tokens.js";

const PACE_WORDS = { 0.05: "shown at 1/20 of real speed", 0.25: "shown at 1/4 of real speed", 1: "shown at real speed" };
const PACE_KEY = "specdemo-pace";
const LIVE_GAP_MS = 3000;

/** Called once by the Gradio component. */
export function mount({ element, props, watch, base, settings }) {
  const stage = new Stage(element.querySelector(".sd"), { base, ...settings });
  const feed = () => stage.feed(props.value ?? "");
  watch("value", feed);
  feed();
}

class Stage {
  constructor(root, settings) {
    this.root = root;
    this.roles = Object.fromEntries(
      [...root.querySelectorAll("[data-role]")].map((node) => [node.dataset.role, node]),
    );
    this.labels = labelsOf(root);
    this.plots = new Plots(root, settings);
    this.player = new Player({
      onStep: (step) => this.play(step),
      onFinish: () => this.conclude(),
      onStall: () => this.showPace(),
    });
    this.wireControls();
    this.reset();
  }

  // The value only grows during a run; anything else is the beginning of another run.
  feed(value) {
    if (!value.startsWith(this.seen)) this.reset();
    const lines = value.slice(this.seen.length).split("\n");
    this.seen = value;
    for (const line of lines) if (line) this.take(JSON.parse(line));
  }

  reset() {
    this.seen = "";
    this.started = false;
    this.end = null;
    this.latest = -1;
    this.lastSpoken = 0;
    this.pieces = new Pieces();
    this.lanes = {};
    for (const article of this.root.querySelectorAll("[data-lane]")) {
      this.lanes[article.dataset.lane] = new LaneView(article, this.pieces);
    }
    this.player.reset([]);
    this.plots.clear();
    clearFigures(this.root, this.labels);
    this.light(null);
    this.showStrip("hint");
    this.setState("idle");
    this.roles["show-all"].disabled = true;
    this.roles["show-all"].textContent = "Show all";
    this.roles.live.textContent = "";
  }

  take(event) {
    if (event.type === "progress") this.progress(event);
    else if (event.type === "start") this.start(event);
    else if (event.type === "round") this.receive(event);
    else if (event.type === "end") this.finish(event);
    else if (event.type === "error") this.fail(event);
  }

  progress({ text, fraction }) {
    this.setState("waiting");
    this.roles["progress-text"].textContent = text;
    const track = this.roles.progress.querySelector("[role=progressbar]");
    const percent = Math.round(100 * fraction);
    track.setAttribute("aria-valuenow", percent);
    track.firstElementChild.style.width = `${percent}%`;
    this.showStrip("progress");
  }

  start({ run, pieces, specials }) {
    this.pieces.add(pieces, specials);
    const names = run.config.baseline ? Object.keys(this.lanes) : ["speculative"];
    for (const name of names) this.lanes[name].setPrompt(run.config.prompt, run.config.mode);
    this.player.reset(names);
    this.player.pace = this.pace;
    this.started = true;
    this.roles["show-all"].disabled = false;
    this.roles.hint.textContent = `${ruleWords(run.config)} ${pairWords(run)}`;
    this.showStrip("hint");
    this.setState("playing");
    this.showPace();
  }

  receive(event) {
    this.pieces.add(event.pieces);
    this.player.add(event);
    this.showPace();
  }

  finish(event) {
    this.end = event;
    this.player.close();
    if (event.finish === "stopped") this.player.skip();
  }

  fail({ message }) {
    this.player.close();
    this.player.skip();
    this.roles.error.textContent = message;
    this.showStrip("error");
    this.setState("error");
  }

  /** One phase of one round has come on the virtual clock. */
  play({ kind, lane, event, index, order }) {
    const view = this.lanes[lane];
    const { round } = event;
    const speculative = lane === "speculative";
    if (kind === "propose") view.propose(round, index);
    else if (kind === "verify") view.verifying();
    else if (speculative) view.settle(round);
    else view.step(round);
    if (speculative) this.light({ propose: "draft", verify: "verify", settle: "verdict" }[kind]);
    if (kind !== "settle") return;
    if (speculative) {
      this.plots.add(round, event.totals);
      this.speak(round);
    }
    if (order > this.latest) {
      this.latest = order;
      showFigures(this.root, event.totals);
    }
  }

  conclude() {
    this.light(null);
    if (this.started) this.roles["show-all"].textContent = "Play again";
    this.roles["pace-text"].textContent = PACE_WORDS[this.pace];
    if (!this.end) return;
    showFigures(this.root, this.end.totals);
    this.roles.sentence.textContent = this.end.sentence;
    const { badge } = this.end;
    this.roles.badge.hidden = !badge;
    this.roles.badge.dataset.kind = badge?.kind ?? "";
    this.roles.badge.textContent = badge?.text ?? "";
    this.roles.live.textContent = this.end.sentence;
    this.showStrip("closing");
    this.setState("ended");
  }

  light(phase) {
    for (const item of this.root.querySelectorAll("[data-phase]")) {
      item.toggleAttribute("data-lit", item.dataset.phase === phase);
    }
  }

  // At most one sentence every few seconds, for those who listen.
  speak(round) {
    const now = performance.now();
    if (now - this.lastSpoken < LIVE_GAP_MS) return;
    this.lastSpoken = now;
    const kept = round.drafted.filter((token) => token.status === "accepted").length;
    const added = round.emission ? `, then one ${round.emission.status} token` : "";
    this.roles.live.textContent = `Round ${round.index + 1}: ${kept} of ${round.drafted.length} accepted${added}.`;
  }

  showStrip(shown) {
    for (const role of ["hint", "progress", "error", "closing"]) this.roles[role].hidden = role !== shown;
  }

  setState(state) {
    this.root.dataset.state = state;
  }

  showPace() {
    const { player } = this;
    const stalled = this.started && !player.closed && player.time >= player.frontier();
    this.roles["pace-text"].textContent = stalled ? "waiting for the models" : PACE_WORDS[this.pace];
  }

  showAllOrReplay() {
    if (!this.player.finished) return this.player.skip();
    const run = this.seen;
    this.reset();
    this.feed(run);
  }

  wireControls() {
    const radios = [...this.root.querySelectorAll("input[name=sd-pace]")];
    const remembered = radios.find((radio) => radio.value === recall(PACE_KEY));
    if (remembered) remembered.checked = true;
    const take = () => {
      this.pace = Number(radios.find((radio) => radio.checked).value);
      this.player.pace = this.pace;
      this.showPace();
    };
    for (const radio of radios) {
      radio.addEventListener("change", () => {
        take();
        remember(PACE_KEY, radio.value);
      });
    }
    take();
    this.roles["show-all"].addEventListener("click", () => this.showAllOrReplay());
    this.roles["hide-discarded"].addEventListener("change", ({ target }) => {
      this.root.toggleAttribute("data-plain", target.checked);
    });
  }
}

function ruleWords({ rule, k, temperature }) {
  const rules = {
    greedy: "greedy: a drafted token stays while it is the target's first choice",
    rejection: "rejection sampling: a drafted token stays with probability min(1, p/q)",
    "shared-noise": "shared noise: a drafted token stays while the target, given the same noise, picks it too",
  };
  return `Rule: ${rules[rule]}. k = ${k}, temperature ${temperature}.`;
}

function pairWords({ pair, precision, device, config }) {
  const drafts = {
    "prompt-lookup": "drafts copied from the text",
    "lookup+model": `drafts copied from the text, else by the ${pair.draft}`,
    "feature-draft": "feature draft",
    "lookup+feature": "drafts copied from the text, else by the feature draft",
    "early-exit": "drafts by the target's first layers",
    scripted: "a script as draft",
  };
  return `Target ${pair.target}, ${drafts[config.drafter] ?? pair.draft}; ${precision} on ${device}.`;
}

// Storage may be denied (private windows, embedded pages); the page works without it.
function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // See recall.
  }
}
