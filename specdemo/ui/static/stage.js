// The conductor: takes in a run's events, keeps the clock, and has every view draw the moment it shows.
// Every figure comes with the events; none is computed here.

import { learnDrafters } from "./drafters.js";
import { rolesOf } from "./dom.js";
import { Figures } from "./figures.js";
import { Helps } from "./helps.js";
import { PageKeys } from "./keys.js";
import { LaneScroll } from "./lane_scroll.js";
import { LaneView } from "./lanes.js";
import { keepRun, LastRun } from "./last_run.js";
import { GrowingLines, parseEvents } from "./ndjson.js";
import { PassBlocks } from "./pass_blocks.js";
import { Player } from "./player.js";
import { Plots } from "./plots.js";
import { progressBar } from "./progress_bar.js";
import { Selection } from "./selection.js";
import { Speaker } from "./speech.js";
import { keepTabInAddress, tabOpener } from "./tabs.js";
import { named, Pieces } from "./tokens.js";
import { Toolbar } from "./toolbar.js";
import { BASELINE, DRAFT, SPECULATIVE, Trace } from "./trace.js";
import { Transport } from "./transport.js";
import { pairWords, roundWords, ruleWords } from "./words.js";

const PHONE_PX = 900; // as in the style sheets

let mounted = null;

/** The one stage of the page, for whoever has it show something; null before it is there. */
export function stageOfPage() {
  return mounted;
}

/** Called once by the Gradio component. */
export function mount({ element, props, watch, base, settings }) {
  const stage = new Stage(element.querySelector(".sd"), { base, ...settings });
  document.querySelector(".sd-header-tools")?.append(stage.roles.tools);
  const feed = () => stage.feed(props.value ?? "");
  watch("value", feed);
  feed();
  mounted = stage;
  keepTabInAddress();
  const asked = new URL(location.href).searchParams;
  const isPlain = [...asked.keys()].every((name) => name.startsWith("__")); // Gradio's own: asks for nothing to be shown
  if (isPlain && !props.value) stage.lastRun.show();
  stage.toolbar.offerRecordings(asked.get("trace"));
}

/** Called once by a page that carries its run with it. */
export function mountOffline({ root, text, settings }) {
  const stage = new Stage(root, { base: document.baseURI, ...settings });
  root.dataset.offline = "true";
  if (text.trim()) stage.load(text, null);
}

class Stage {
  constructor(root, settings) {
    learnDrafters(settings.drafters);
    this.root = root;
    this.roles = rolesOf(root);
    this.trace = new Trace();
    this.pieces = new Pieces();
    this.lines = new GrowingLines();
    this.progressBar = progressBar("Preparing");
    this.roles.progress.append(this.progressBar);
    this.figures = new Figures(root);
    this.helps = new Helps(root);
    this.speaker = new Speaker(this.roles.live);
    this.keys = new PageKeys(this);
    this.lastRun = new LastRun(this);
    this.lanes = {};
    for (const article of root.querySelectorAll("[data-lane]")) {
      this.lanes[article.dataset.lane] = new LaneView(article, this.pieces);
    }
    this.scroll = new LaneScroll(Object.values(this.lanes));
    this.passes = new PassBlocks(root);
    this.plots = new Plots(root, settings, (index) => this.selection.open(index));
    this.selection = new Selection(this);
    this.transport = new Transport(this);
    this.toolbar = new Toolbar(this, settings.base);
    this.roles["show-discards"].addEventListener("change", ({ target }) => {
      root.toggleAttribute("data-all-discards", target.checked);
      this.reflow();
    });
    this.begin();
  }

  get rule() {
    return this.trace.start.run.config.rule;
  }

  /** Show the live value as it is now. */
  feed(value) {
    const { anew, events } = this.lines.read(value);
    if (anew) {
      this.begin();
      this.live = true;
      this.comeIntoView();
    } else if (!this.live) return; // the rest of a run that a recording has taken the place of
    for (const event of events) this.take(event);
    this.player.wake();
    this.redraw();
    this.showState();
  }

  /** On a phone the stage lies below what started it. */
  comeIntoView() {
    if (innerWidth > PHONE_PX || !this.root.offsetParent) return;
    const smooth = matchMedia("(prefers-reduced-motion: no-preference)").matches;
    this.root.scrollIntoView({ behavior: smooth ? "smooth" : "auto", block: "start" });
  }

  /** Play a finished run from its events; `recording` is its name where it is a shipped one. */
  load(text, recording) {
    this.begin();
    this.recording = recording;
    for (const event of parseEvents(text)) this.take(event);
    if (recording) this.root.dataset.recording = recording;
    this.player.play();
  }

  /**
   * Show a recording as a lesson asks for it: `focus` leaves one lane in sight, `pace` is as the buttons have it,
   * `hold` waits at the start, `round` opens that round (from 0).
   */
  async present({ recording, focus, pace, hold, round }) {
    await this.toolbar.playRecording(recording);
    if (focus) this.root.dataset.focus = focus;
    if (pace) this.transport.setPace(pace);
    if (hold) this.player.pause(); // before the first frame, so at the start
    if (round !== undefined) this.selection.open(round);
  }

  /** Empty, ready for a run. */
  begin() {
    this.player?.pause();
    this.live = false;
    this.recording = null;
    this.lastRun.leave();
    for (const told of ["recording", "focus"]) delete this.root.dataset[told];
    this.spoken = 0; // rounds at the time of the latest sentence
    this.failure = null;
    this.waiting = null;
    this.trace = new Trace();
    this.pieces = new Pieces();
    for (const view of Object.values(this.lanes)) view.clear(this.pieces);
    this.scroll.begin();
    this.player = new Player({
      trace: this.trace,
      pace: this.transport.pace,
      onTime: () => this.redraw(),
      onState: () => this.showState(),
    });
    this.selection.clear();
    this.toolbar.enable(false);
    this.figures.clear();
    this.plots.setTrace(this.trace);
    this.speaker.silence();
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
      if (event.type === "end" && this.live) keepRun(this.trace.events);
    }
  }

  progress({ text, fraction }) {
    this.waiting = text;
    this.roles["progress-text"].textContent = text;
    this.progressBar.value = fraction;
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
    this.roles.hint.textContent = named(`${ruleWords(run.config)} ${pairWords(run)}`);
    this.roles.hint.title = this.roles.hint.textContent;
    this.roles.arithmetic.textContent = named(run.arithmetic ?? "");
    this.roles.arithmetic.hidden = !run.arithmetic;
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
    for (const name of Object.keys(state)) this.lanes[name].show(trace.entries(name), state[name], player);
    this.passes.show(state);
    this.lanes[BASELINE].markDeparture(totals?.divergence ?? null);
    this.lanes[DRAFT].markDeparture(totals?.draft_alone_departs ?? null);
    this.figures.show(totals, trace.start && this.rule, totals !== null && totals === trace.end?.totals);
    this.helps.show(totals, trace.start?.run ?? null);
    this.selection.strip.show(trace.entries(SPECULATIVE), state[SPECULATIVE]?.settled ?? 0);
    this.plots.show(state, totals);
    this.light(trace.phaseAt(player.time));
    this.transport.showTime();
    this.speak(state[SPECULATIVE]?.settled ?? 0);
    this.scroll.follow();
    this.showPasses();
  }

  showPasses() {
    for (const name of this.trace.lanes.keys()) this.lanes[name].showPass(this.player);
  }

  /** Lines may break elsewhere from now on. */
  reflow() {
    this.scroll.reflow();
  }

  light(phase) {
    for (const item of this.root.querySelectorAll("[data-phase]")) {
      item.toggleAttribute("data-lit", item.dataset.phase === phase);
    }
  }

  /** What plays, waits or has ended: the notice above the lanes and the controls. */
  showState() {
    const { player, trace, root, roles } = this;
    const ended = Boolean(trace.end) && player.atEnd;
    root.dataset.state = this.failure ? "error" : ended ? "ended" : trace.start ? "playing" : this.waiting ? "waiting" : "idle";
    root.toggleAttribute("data-running", player.playing);
    this.showPasses();
    this.transport.showState();
    if (ended) this.showClosing(trace.end);
    const shown = this.failure ? "error" : ended ? "closing" : trace.start || !this.waiting ? "hint" : "progress";
    for (const role of ["hint", "progress", "error", "closing"]) roles[role].hidden = role !== shown;
  }

  showClosing({ sentence, badge }) {
    const { roles } = this;
    roles.sentence.textContent = sentence;
    roles.badge.hidden = !badge;
    roles.badge.dataset.kind = badge?.kind ?? "";
    const words = badge?.text ?? "";
    if (roles.badge.textContent !== words) {
      // No comparison of tokens can show that; the proof of distributions can.
      roles.badge.replaceChildren(badge?.kind === "distribution" ? tabOpener("proof", words) : words);
    }
    this.speaker.sayNow(sentence);
  }

  // One sentence a round, for those who listen.
  speak(settled) {
    if (settled === this.spoken) return;
    this.spoken = settled;
    if (settled) this.speaker.say(roundWords(this.trace.entries(SPECULATIVE)[settled - 1].round));
  }
}
