// The conductor: takes in a run's events, keeps the clock, and has every view draw the moment it shows.
// Every figure comes with the events; none is computed here.

import { rolesOf } from "./dom.js";
import { Figures } from "./figures.js";
import { TokenInspector } from "./inspect.js";
import { LaneView } from "./lanes.js";
import { recall, remember } from "./memory.js";
import { Microscope } from "./microscope.js";
import { Player } from "./player.js";
import { Plots } from "./plots.js";
import { RoundStrip } from "./strip.js";
import { Tip } from "./tip.js";
import { Pieces } from "./tokens.js";
import { Toolbar } from "./toolbar.js";
import { BASELINE, DRAFT, parseEvents, SPECULATIVE, Trace } from "./trace.js";
import { pairWords, roundWords, ruleWords } from "./words.js";

const PACE_WORDS = { tokens: "shown at 10 tokens a second", 0.05: "shown at 1/20 of real speed", 0.25: "shown at 1/4 of real speed", 1: "shown at real speed" };
const PACE_KEY = "specdemo-pace";
const SPOKEN_GAP_MS = 3000;

/** Called once by the Gradio component. */
export function mount({ element, props, watch, base, settings }) {
  const stage = new Stage(element.querySelector(".sd"), { base, ...settings });
  const feed = () => stage.feed(props.value ?? "");
  watch("value", feed);
  feed();
  stage.toolbar.offerRecordings(new URL(location.href).searchParams.get("trace"));
}

/** Called once by a page that carries its run with it. */
export function mountOffline({ root, text, settings }) {
  const stage = new Stage(root, { base: document.baseURI, ...settings });
  root.dataset.offline = "true";
  if (text.trim()) stage.load(text, null);
}

class Stage {
  constructor(root, settings) {
    this.root = root;
    this.roles = rolesOf(root);
    this.trace = new Trace();
    this.pieces = new Pieces();
    this.seen = "";
    this.figures = new Figures(root);
    this.lanes = {};
    for (const article of root.querySelectorAll("[data-lane]")) {
      this.lanes[article.dataset.lane] = new LaneView(article, this.pieces);
    }
    this.tip = new Tip(this.roles.tip, root);
    this.strip = new RoundStrip(this.roles.rounds, {
      onOpen: (index) => this.open(index),
      onHover: (index, event) => this.hintRound(index, event),
    });
    this.microscope = new Microscope(this.roles.microscope, {
      onClose: () => this.closeMicroscope(),
      onStep: (direction) => this.openNeighbour(direction),
    });
    this.inspector = new TokenInspector(this.lanes, this.tip, {
      describe: (span, facts) =>
        this.tip.showToken(span, facts, this.rule, this.pieces, () => this.open(facts.entry.round.index, facts.place ?? "own")),
      choose: (facts) => this.choose(facts),
    });
    this.plots = new Plots(root, settings, (index) => this.open(index));
    this.toolbar = new Toolbar(this, settings.base);
    this.wireTransport();
    this.begin();
  }

  get rule() {
    return this.trace.start.run.config.rule;
  }

  /** The live value only grows during a run; anything else is the beginning of another one. */
  feed(value) {
    if (value === this.seen) return;
    const goesOn = this.live && value.startsWith(this.seen);
    if (!goesOn) {
      this.seen = "";
      this.begin();
      this.live = true;
    }
    const news = value.slice(this.seen.length);
    this.seen = value;
    for (const event of parseEvents(news)) this.take(event);
    this.player.wake();
    this.redraw();
    this.showState();
  }

  /** Play a finished run from its events; `recording` is its name where it is a shipped one. */
  load(text, recording) {
    this.begin();
    this.recording = recording;
    for (const event of parseEvents(text)) this.take(event);
    this.player.play();
  }

  /** Empty, ready for a run. */
  begin() {
    this.player?.pause();
    this.live = false;
    this.recording = null;
    this.spoken = 0;
    this.failure = null;
    this.waiting = null;
    this.trace = new Trace();
    this.pieces = new Pieces();
    for (const view of Object.values(this.lanes)) view.clear(this.pieces);
    this.player = new Player({
      trace: this.trace,
      pace: this.pace,
      onTime: () => this.redraw(),
      onState: () => this.showState(),
    });
    this.deselect();
    this.toolbar.enable(false);
    this.figures.clear();
    this.plots.setTrace(this.trace);
    this.roles.live.textContent = "";
    this.redraw();
    this.showState();
  }

  take(event) {
    if (event.type === "progress") this.progress(event);
    else if (event.type === "error") this.fail(event.message);
    else {
      this.trace.take(event);
      if (event.pieces) this.pieces.add(event.pieces, event.specials);
      if (event.type === "start") this.start(event);
      if (event.type === "end" && event.finish === "stopped") this.player.seekEnd();
    }
  }

  progress({ text, fraction }) {
    this.waiting = text;
    this.roles["progress-text"].textContent = text;
    const track = this.roles.progress.querySelector("[role=progressbar]");
    const percentDone = Math.round(100 * fraction);
    track.setAttribute("aria-valuenow", percentDone);
    track.firstElementChild.style.width = `${percentDone}%`;
    this.showState();
  }

  start({ run }) {
    this.waiting = null;
    for (const [name, view] of Object.entries(this.lanes)) {
      const runs = this.trace.lanes.has(name);
      view.article.hidden = name === DRAFT && !runs;
      if (runs) view.setPrompt(run.config.prompt, run.config.mode);
    }
    this.root.toggleAttribute("data-three", this.trace.lanes.has(DRAFT));
    this.roles.hint.textContent = `${ruleWords(run.config)} ${pairWords(run)}`;
    this.roles.hint.title = this.roles.hint.textContent;
    this.toolbar.enable(true);
    this.player.play();
  }

  fail(message) {
    this.failure = message;
    this.roles.error.textContent = message;
    this.trace.close();
    this.player.seekEnd();
    this.showState();
  }

  /** Everything as it is at the clock's time. */
  redraw() {
    const { trace, player } = this;
    const state = trace.stateAt(player.time);
    const totals = trace.totalsAt(player.time);
    for (const name of Object.keys(state)) this.lanes[name].show(trace.entries(name), state[name]);
    this.lanes[BASELINE].markDeparture(totals?.divergence ?? null);
    this.lanes[DRAFT].markDeparture(totals?.draft_alone_departs ?? null);
    this.figures.show(totals, trace.start && this.rule);
    this.strip.show(trace.entries(SPECULATIVE), state[SPECULATIVE]?.settled ?? 0);
    this.plots.show(state, totals);
    this.light(trace.phaseAt(player.time));
    this.showClock();
    this.speak(state[SPECULATIVE]?.settled ?? 0);
    for (const name of Object.keys(state)) this.lanes[name].follow();
  }

  reflow() {
    for (const view of Object.values(this.lanes)) view.reflow();
  }

  light(phase) {
    for (const item of this.root.querySelectorAll("[data-phase]")) {
      item.toggleAttribute("data-lit", item.dataset.phase === phase);
    }
  }

  showClock() {
    const { scrub, clock } = this.roles;
    const frontier = this.trace.frontier();
    if (scrub.max !== String(frontier)) scrub.max = frontier;
    scrub.value = this.player.time;
    clock.textContent = `${this.player.time.toFixed(2)} s`;
    scrub.setAttribute("aria-valuetext", `${clock.textContent} of ${frontier.toFixed(2)}`);
  }

  /** What plays, waits or has ended: the notice above the lanes, the buttons, the pace. */
  showState() {
    const { player, trace, root, roles } = this;
    const ended = Boolean(trace.end) && player.atEnd;
    root.dataset.state = this.failure ? "error" : ended ? "ended" : trace.start ? "playing" : this.waiting ? "waiting" : "idle";
    root.toggleAttribute("data-running", player.playing);
    roles.play.setAttribute("aria-label", player.playing ? "Pause" : "Play");
    roles.play.title = player.playing ? "pause" : "play";
    const words = PACE_WORDS[player.pace];
    roles["pace-text"].textContent = player.stalled ? "waiting for the models" : words;
    if (ended) this.showClosing(trace.end);
    const shown = this.failure ? "error" : ended ? "closing" : trace.start || !this.waiting ? "hint" : "progress";
    for (const role of ["hint", "progress", "error", "closing"]) roles[role].hidden = role !== shown;
    for (const name of TRANSPORT) roles[name].disabled = !trace.start;
  }

  showClosing({ sentence, badge }) {
    const { roles } = this;
    roles.sentence.textContent = sentence;
    roles.badge.hidden = !badge;
    roles.badge.dataset.kind = badge?.kind ?? "";
    roles.badge.textContent = badge?.text ?? "";
    if (roles.live.textContent !== sentence) roles.live.textContent = sentence;
  }

  // At most one sentence every few seconds, for those who listen.
  speak(settled) {
    const now = performance.now();
    if (!settled || !this.player.playing || now - this.spoken < SPOKEN_GAP_MS) return;
    this.spoken = now;
    this.roles.live.textContent = roundWords(this.trace.entries(SPECULATIVE)[settled - 1].round);
  }

  hintRound(index, event) {
    if (this.tip.pinned) return;
    if (index === null) this.tip.hide();
    else this.tip.showWords(roundWords(this.trace.entries(SPECULATIVE)[index].round), event);
  }

  /** Select a token's round; what is open follows. */
  choose({ entry, place }) {
    const { index } = entry.round;
    if (entry.lane !== SPECULATIVE) return;
    if (this.microscope.open) this.open(index, place ?? "own");
    else this.select(index);
  }

  select(index) {
    const entry = this.trace.entries(SPECULATIVE)[index];
    if (!entry) return null;
    this.player.pause();
    if (this.player.time < entry.to) this.player.seek(entry.to);
    this.selected = index;
    this.strip.select(index);
    this.plots.select(index);
    this.lanes[SPECULATIVE].select(index);
    return entry;
  }

  /** Put a round under the microscope, pointing at one of its tokens where `place` says which. */
  open(index, place) {
    const entry = this.select(index);
    if (!entry) return;
    if (place === undefined) this.inspector.clear();
    this.root.setAttribute("data-inspecting", "");
    this.microscope.show(entry, this.rule, this.pieces, place);
    this.lanes[SPECULATIVE].select(index);
    this.roles.microscope.scrollIntoView({ block: "nearest" });
  }

  openNeighbour(direction) {
    const last = this.trace.entries(SPECULATIVE).length - 1;
    this.open(Math.min(last, Math.max(0, this.selected + direction)));
  }

  /** Back to the strip it was opened from. */
  closeMicroscope() {
    this.deselect();
    this.roles.rounds.focus();
  }

  deselect() {
    this.inspector.clear();
    this.microscope.hide();
    this.root.removeAttribute("data-inspecting");
    this.selected = null;
    this.strip.select(null);
    this.plots.select(null);
    this.lanes[SPECULATIVE].select(null);
  }

  wireTransport() {
    const { roles } = this;
    const on = (role, act) => roles[role].addEventListener("click", act);
    on("play", () => this.player.toggle());
    on("to-start", () => this.player.seek(0));
    on("to-end", () => this.player.seekEnd());
    on("round-back", () => this.player.step(this.trace.roundStops(), -1));
    on("round-on", () => this.player.step(this.trace.roundStops(), 1));
    on("phase-back", () => this.player.step(this.trace.phaseStops(), -1));
    on("phase-on", () => this.player.step(this.trace.phaseStops(), 1));
    roles.scrub.addEventListener("input", () => {
      this.player.pause();
      this.player.seek(Number(roles.scrub.value));
    });
    this.root.addEventListener("keydown", (event) => this.escape(event));
    roles["hide-discarded"].addEventListener("change", ({ target }) => {
      this.root.toggleAttribute("data-plain", target.checked);
      this.reflow();
    });
    this.wirePace();
  }

  wirePace() {
    const radios = [...this.root.querySelectorAll("input[name=sd-pace]")];
    const remembered = radios.find((radio) => radio.value === recall(PACE_KEY));
    if (remembered) remembered.checked = true;
    const take = () => {
      const { value } = radios.find((radio) => radio.checked);
      this.pace = value === "tokens" ? value : Number(value);
      if (!this.player) return;
      this.player.pace = this.pace;
      this.showState();
    };
    for (const radio of radios) {
      radio.addEventListener("change", () => {
        take();
        remember(PACE_KEY, radio.value);
      });
    }
    take();
  }

  escape(event) {
    if (event.key !== "Escape") return;
    if (this.tip.pinned || !this.roles.tip.hidden) this.inspector.clear();
    else if (this.microscope.open) this.closeMicroscope();
  }
}

const TRANSPORT = ["to-start", "round-back", "phase-back", "play", "phase-on", "round-on", "to-end", "scrub"];
