// The stage receives the events of a run, keeps the clock, and makes every view draw the current moment.
// All figures come with the events; the browser does not compute any.

import { PHONE_PX, recallInTab, rolesOf } from "../common/dom.js";
import { Bricks, Figures } from "./figures.js";
import { Helps } from "./helps.js";
import { LaneScroll } from "./lane_scroll.js";
import { LaneView } from "./lanes.js";
import { showLiveLink } from "./live_link.js";
import { GrowingLines, parseEvents } from "../common/ndjson.js";
import { Notice, Speaker } from "./notice.js";
import { CLASS_KEY, heldSettings, keepTabInAddress, mountTab, startRun } from "../common/page.js";
import { PageKeys, Player, setModelsRun, slowedAt, Transport } from "./player.js";
import { PassView } from "./pass_view.js";
import { Plots } from "./plots.js";
import { Arrival, fetchRecording, hasSettings, isStill, LastRun, nearest, REPEATS, Source } from "./recordings.js";
import { ShownRun } from "./run.js";
import { Selection } from "./selection.js";
import { linkTo } from "./share.js";
import { Toolbar } from "./toolbar.js";
import { BASELINE, DRAFT, SPECULATIVE } from "./trace.js";
import { learnTables } from "../common/tables.js";
import { openingWords, roundWords } from "../common/words.js";

let mounted = null;

/** The stage of the page; null before it is mounted. */
export function stageOfPage() {
  return mounted;
}

/** Called once by the Gradio component. */
export function mount({ element, props, watch, trigger, base, settings }) {
  const stage = new Stage(element.querySelector(".sd"), { base, ...settings });
  stage.source.repeat.addEventListener("click", () => {
    const asked = new URL(linkTo(location.href, stage.trace.start.run, null)).searchParams;
    asked.set("repeats", REPEATS);
    startRun(trigger, String(asked));
  });
  const feed = () => stage.feed(props.value ?? "");
  watch("value", feed);
  feed();
  mounted = stage;
  // After a reload, a class goes on whichever tab is open.
  if (recallInTab(CLASS_KEY)) mountTab("class", ".sd-class").then(keepTabInAddress);
  else keepTabInAddress();
  document.querySelector(".sd-skip")?.addEventListener("click", () => stage.lanes[SPECULATIVE].box.focus());
  welcome(stage, Boolean(props.value));
}

/** Show the run that the address names, else the last run of this browser, else a recording. */
async function welcome(stage, isRunning) {
  const asked = new URL(location.href).searchParams;
  const isPlain = [...asked.keys()].every((name) => name.startsWith("__")); // parameters of Gradio begin with "__"
  const isRepeat = hasSettings(asked) && !["trace", "lesson", "proof"].some((name) => asked.has(name));
  if (isRepeat) stage.roles.hint.textContent = "Your link has set the prompt and settings. Press Run to start the linked run.";
  const hasShown = isRunning || (!isPlain && !isRepeat) || (isPlain && stage.lastRun.show());
  const offered = await stage.toolbar.offerRecordings(asked.get("trace"));
  const isIdle = stage.root.dataset.state === "idle" && !stage.arriving && !stage.lesson; // nothing has been started meanwhile
  if (hasShown || !isIdle || !offered.length) return;
  if (isRepeat) await stage.arrival.showLike(nearest(offered, asked).name);
  else if (offered.some(({ name }) => name === stage.arrival.name)) await stage.arrival.show();
}

/** Called once by the page for frames on other sites: play the recording that the address names, else the first one. */
export async function mountEmbedded({ root, link, base, settings }) {
  const stage = new Stage(root, { base, ...settings });
  root.dataset.offline = "true"; // this page has no widgets, and stores no runs
  const recording = new URL(location.href).searchParams.get("trace");
  if (recording) link.href = linkTo(location.href, {}, recording);
  await stage.arrival.play(recording || stage.arrival.name);
}

/** Called once by an offline page, which contains its run. */
export function mountOffline({ root, text, settings }) {
  const stage = new Stage(root, { base: document.baseURI, ...settings });
  root.dataset.offline = "true";
  if (text.trim()) stage.load(text, null);
}

/** Called once by a student's page; returns the stage, which shows the runs of the teacher's page. */
export function mountFollowing({ root, base, settings }) {
  const stage = new Stage(root, { base, ...settings });
  root.dataset.offline = "true"; // this page has no widgets, and stores no runs
  stage.roles.hint.textContent = "Your teacher has not shown a run yet.";
  return stage;
}

const MANY_AHEAD = 3; // jobs in the queue before that of a visitor, who may rather run the prompt in the browser
const REPLAY_MS = 2000; // a recording that plays in a queue stands still for so long before it begins again

class Stage {
  constructor(root, settings) {
    learnTables(settings);
    this.root = root;
    this.roles = rolesOf(root);
    this.own = null; // the visitor's run, a `ShownRun`
    this.lesson = null; // the run in its place while a lesson has the stage
    this.arriving = null; // the run whose events come from the component; not shown before its first token
    this.lines = new GrowingLines();
    this.notice = new Notice(this.roles);
    this.figures = new Figures(root);
    this.helps = new Helps(root);
    this.speaker = new Speaker(this.roles.live);
    this.keys = new PageKeys(this);
    this.lastRun = new LastRun(this);
    this.arrival = new Arrival(this, settings.arrival);
    this.source = new Source(this);
    this.topic = new Topic(root);
    this.lanes = {};
    for (const article of root.querySelectorAll("[data-lane]")) {
      this.lanes[article.dataset.lane] = new LaneView(article, null);
    }
    this.scroll = new LaneScroll(Object.values(this.lanes));
    this.bricks = new Bricks(root);
    this.plots = new Plots(root, settings, (index) => this.selection.open(index));
    this.selection = new Selection(this);
    this.pass = new PassView(this.roles.pass, {
      onOpen: (index, place) => {
        this.selection.open(index, place);
        this.roles["microscope-cards"].focus({ preventScroll: true });
      },
      spansOf: (index) => this.lanes[SPECULATIVE].rounds[index]?.kept ?? [],
    });
    this.transport = new Transport(this);
    this.toolbar = new Toolbar(this, settings.base);
    this.roles["show-discards"].addEventListener("change", ({ target }) => {
      root.toggleAttribute("data-all-discards", target.checked);
      this.reflow();
    });
    this.own = this.newRun();
    this.enter();
    this.fillWindow();
  }

  // Lets the style sheet make the first screen as high as the rest of the window, whatever is above the stage; the tools
  // are in the header, on a phone below the lanes.
  fillWindow() {
    const [header, foot] = [document.querySelector(".sd-header-tools"), this.root.querySelector(".sd-foot")];
    const place = () => {
      this.root.style.setProperty("--top", `${this.root.getBoundingClientRect().top + scrollY}px`);
      const room = innerWidth > PHONE_PX ? header : foot;
      if (header && this.roles.tools.parentElement !== room) room.append(this.roles.tools);
    };
    new ResizeObserver(place).observe(document.body);
    addEventListener("resize", place);
    place();
  }

  get rule() {
    return this.trace.start.run.config.rule;
  }

  /** The name of the lane that the clock counts and the steps follow. */
  get steppedLane() {
    return this.root.dataset.focus ?? SPECULATIVE;
  }

  /** The run that is shown. */
  get shown() {
    return this.lesson ?? this.own;
  }

  /** The run that takes the place of the shown one at its first token; null if none is to come. */
  get awaited() {
    const { arriving } = this;
    return arriving && arriving !== this.own && arriving !== this.lesson && arriving.isOfLesson === Boolean(this.lesson) ? arriving : null;
  }

  /** A run that the stage can show; `options` are those of `ShownRun`. */
  newRun(options) {
    const run = new ShownRun({ topic: this.topic.next, isOfLesson: Boolean(this.lesson), ...options });
    this.topic.expect({});
    const ifShown = (act) => () => run === this.shown && act();
    run.player = new Player({
      trace: run.trace,
      pace: this.transport.pace,
      onTime: ifShown(() => this.redraw()),
      onState: ifShown(() => this.showState()),
      slowedAt: (time) => (run.isSlow ? slowedAt(run.trace.entries(SPECULATIVE), time) : null),
    });
    return run;
  }

  /** Take the new value of the component; the value grows during a run. */
  feed(value) {
    const { anew, events } = this.lines.read(value);
    if (anew) this.awaitRun();
    this.receive(events);
  }

  /** Take more events of the run that `awaitRun` has returned, unless another run has taken its place. */
  receive(events) {
    const run = this.arriving;
    if (!run) return;
    if (run === this.shown) return this.takeMore(events);
    for (const event of events) run.take(event);
    if (run.isOver) this.arriving = null;
    else if (run.hasBegun && run === this.awaited) {
      this.put(run);
      if (run.trace.end?.finish === "stopped") this.player.seekEnd();
      return;
    } else if (run.hasBegun) this.own = run; // while a lesson has the stage
    this.showState();
    const ahead = this.awaited?.progress?.ahead ?? 0;
    if (ahead) this.playMeanwhile(run);
    showLiveLink(this.roles["run-here"], this.toolbar.base, ahead >= MANY_AHEAD ? heldSettings() : null);
  }

  /** Return a new run, which `receive` fills; what is on the stage stays until the first token arrives. */
  awaitRun() {
    if (this.arriving) this.arriving.isOver = true; // it has been stopped
    this.arriving = this.newRun({ live: true });
    this.player.pause();
    this.comeIntoView();
    return this.arriving;
  }

  /** True if a recording is shown while the visitor's run waits in the queue. */
  get isQueued() {
    return this.recording !== null && this.awaited?.progress?.ahead > 0;
  }

  // The queue sends an update only when the wait has changed, so the recording begins again by itself.
  replayMeanwhile() {
    const { player } = this;
    const plays = () => this.player === player && this.isQueued && player.atEnd && !isStill();
    if (plays()) setTimeout(() => plays() && player.play(), REPLAY_MS);
  }

  /** Play a recording, again and again, while the visitor's run waits in the queue. */
  async playMeanwhile(run) {
    const { arrival } = this;
    const isFirst = this.meanwhile !== run;
    this.meanwhile = run;
    if (isFirst && !this.recording) {
      const text = await fetchRecording(this.toolbar.base, arrival.name).catch(() => null);
      if (text === null || this.awaited !== run || this.lesson) return; // the visitor's run or a lesson has the stage
      this.load(text, { recording: arrival.name });
      this.arriving = run;
    }
    if (!isFirst || !this.recording) return;
    arrival.say(`Recorded on ${this.trace.start.run.device}.`);
    if (isStill()) this.player.seekEnd();
    else this.player.play();
  }

  /** Take more events of the shown run. */
  takeMore(events) {
    for (const event of events) this.take(event);
    this.player.wake();
    if (!this.player.playing || this.trace.closed) this.redraw(); // otherwise the clock causes a drawing soon
    this.showState();
  }

  // Scrolls to the stage on a phone, where it is below the button that started the run.
  comeIntoView() {
    if (innerWidth > PHONE_PX || !this.root.offsetParent) return;
    this.root.scrollIntoView({ behavior: isStill() ? "auto" : "smooth", block: "start" });
  }

  /** Play a finished run, given its events as NDJSON; `options` are those of `ShownRun`. */
  load(text, options) {
    const run = this.newRun(options);
    for (const event of parseEvents(text)) run.take(event);
    this.put(run);
  }

  /**
   * Show a recording in the way that a lesson needs: with a `topic` (see `Topic`) and a `pace` (the value of a pace
   * button). `hold` pauses it after this number of rounds, or at its "end"; `round` opens the round with this index (from
   * 0), and `divergence` goes to the first token at which the draft model alone differs from the target. The visitor's run
   * is kept; see `giveBack`.
   */
  async present({ recording, pace, hold, round, divergence }, topic) {
    this.lesson ??= this.own; // it is shown until the recording arrives
    this.topic.expect(topic);
    if (!(await this.toolbar.playRecording(recording))) return;
    if (pace) this.transport.setPace(pace);
    if (hold !== undefined) {
      this.player.pause();
      this.player.seek([0, ...this.trace.roundStops(this.steppedLane)][hold] ?? this.trace.frontier());
    }
    if (round !== undefined) this.selection.open(round);
    if (divergence) this.showDivergence();
  }

  showDivergence() {
    const divergence = this.trace.end?.totals.draft_divergence ?? null;
    if (divergence === null) return;
    this.player.seekEnd();
    this.scroll.showToken(divergence);
    this.tell({ divergence: true });
  }

  /** Show the visitor's run again as it was before the lessons; the run of a lesson is stopped. */
  giveBack() {
    if (!this.lesson) return;
    if (this.arriving?.isOfLesson) {
      if (this.arriving.isArriving) this.toolbar.stopRun();
      this.arriving = null;
    }
    this.topic.expect({});
    this.leave();
    this.lesson = null;
    this.enter();
    if (!this.trace.start && !this.arriving && this.own.error === null) this.greet();
  }

  /** Show something on an empty stage: the last run of this browser, else the recording of the prompt in the widgets. */
  greet() {
    const { arrival, lastRun, toolbar } = this;
    if (!lastRun.show() && toolbar.offers(arrival.name)) arrival.show();
  }

  /** Stop the current run, if there is one, and leave the stage empty. */
  clear() {
    this.toolbar.stopRun();
    this.put(this.newRun());
  }

  /** Show `run` in the place of the run that is shown. */
  put(run) {
    const { arriving } = this;
    if (arriving && run !== arriving && arriving.isOfLesson === Boolean(this.lesson)) this.arriving = null; // nobody would see it
    run.player.pace = this.transport.pace;
    run.isSlow = run.player.pace === "fit" && !this.lesson && !run.isKept;
    this.leave();
    if (this.lesson) this.lesson = run;
    else this.own = run;
    this.enter();
  }

  leave() {
    const { shown, selection } = this;
    shown.round = selection.microscope.open ? selection.index : null;
    shown.wasPlaying = shown.player.playing;
    shown.player.pause();
  }

  // Draws the shown run from its beginning, and goes on where it was left.
  enter() {
    const { shown, root } = this;
    for (const [name, value] of Object.entries({ recording: shown.recording, kept: shown.isKept || null })) {
      if (value) root.dataset[name] = value;
      else delete root.dataset[name];
    }
    this.source.show(null);
    this.topic.show(shown.topic);
    this.notice.begin();
    this.spoken = 0; // the number of rounds when the latest sentence was spoken
    for (const view of Object.values(this.lanes)) view.clear(shown.pieces);
    this.scroll.setFollowing(true);
    this.selection.clear();
    this.toolbar.enable(false);
    this.figures.clear();
    this.plots.setTrace(shown.trace);
    this.speaker.silence();
    this.transport.setPace(String(shown.player.pace));
    const { wasPlaying, round } = shown;
    if (shown.trace.start) this.start(shown.trace.start);
    this.redraw();
    if (shown.error !== null) this.fail(shown.error);
    else if (round !== null) this.selection.open(round);
    if (wasPlaying && shown.trace.start && !shown.player.atEnd) shown.player.play();
    this.showState();
  }

  take(event) {
    this.shown.take(event);
    if (event.type === "error") this.fail(event.message);
    else if (event.type === "start") {
      this.start(event);
      this.player.play();
    } else if (event.finish === "stopped") this.player.seekEnd();
  }

  start({ run }) {
    for (const [name, view] of Object.entries(this.lanes)) {
      const runs = this.trace.lanes.has(name);
      view.article.hidden = name === DRAFT && !runs;
      if (runs) view.setPrompt(run.config.prompt, run.config.mode);
    }
    this.root.toggleAttribute("data-three", this.trace.lanes.has(DRAFT));
    this.root.toggleAttribute("data-raced", this.trace.lanes.has(BASELINE));
    this.notice.open(openingWords(run));
    this.source.show(run);
    this.toolbar.enable(true);
  }

  fail(message) {
    this.roles.error.textContent = message;
    this.player.seekEnd();
    this.showState();
  }

  /** Draw everything at the clock's time. */
  redraw() {
    const { trace, player } = this;
    const state = trace.stateAt(player.time);
    const totals = trace.totalsAt(player.time);
    const settled = state[SPECULATIVE]?.settled ?? 0;
    for (const name of Object.keys(state)) this.lanes[name].show(trace.entries(name), state[name]);
    const run = trace.start?.run;
    this.bricks.show(state, totals, run?.watched?.rounds === false, this.root.dataset.focus);
    const lane = this.steppedLane;
    const moment = trace.momentAt(player.time, lane);
    this.pass.show(moment, trace.entries(lane), run, this.pieces, player);
    this.pass.say(moment, state[lane]?.settled, trace.entries(lane), run, player.playing);
    this.lanes[BASELINE].markDivergence(totals?.divergence ?? null);
    this.lanes[DRAFT].markDivergence(totals?.draft_divergence ?? null);
    const isFinal = totals !== null && totals === trace.end?.totals;
    this.figures.show(totals, trace.start && this.rule, isFinal ? trace.end : null, trace.trustAt(player.time));
    this.helps.show(totals, trace.start?.run ?? null);
    this.selection.follow(player.time);
    this.selection.strip.show(trace.entries(SPECULATIVE), settled);
    this.plots.show(state, totals);
    this.transport.showTime(state[lane]?.settled ?? 0);
    if (settled) this.root.dataset.seen = "true"; // a round: the visitor knows what the figures are about
    this.speak(settled);
    this.scroll.follow();
  }

  /** Lay the lanes out again, because lines may break elsewhere now. */
  reflow() {
    this.scroll.reflow();
  }

  /** The state of the stage: idle, waiting, playing, ended or error. */
  get state() {
    const { awaited, shown, trace, player } = this;
    if (awaited) return awaited.progress ? "waiting" : "idle";
    if (shown.error !== null) return "error";
    if (trace.end && player.atEnd) return "ended";
    return trace.start ? "playing" : "idle";
  }

  /** Show in the notice and the controls whether the run plays, waits or has ended. */
  showState() {
    const { awaited, player, trace, root, notice, state } = this;
    if (state === "waiting") notice.wait(awaited.progress, this.isQueued);
    this.replayMeanwhile();
    root.dataset.state = state;
    root.toggleAttribute("data-running", player.playing);
    setModelsRun(Boolean(this.arriving?.isArriving));
    this.plots.wake();
    this.transport.showState();
    notice.show(state);
    if (state === "ended") {
      this.shown.isSlow = false;
      notice.close(trace.end, root.dataset.focus);
      this.source.repeat.hidden = !this.live || !this.isOwn || trace.end.totals.speedup === null;
      this.speaker.sayNow(`${trace.end.sentence} ${trace.end.remarks ?? ""}`.trimEnd());
    }
    this.tell();
  }

  /** Dispatch an event with the moment that is shown; lessons and classes listen to it. */
  tell({ divergence = false } = {}) {
    const { recording, trace, player, selection, root } = this;
    const round = selection?.microscope.open ? trace.entries(SPECULATIVE)[selection.index].round : null;
    const settled = trace.stateAt(player.time)[SPECULATIVE]?.settled ?? 0;
    const detail = { recording, focus: root.dataset.focus, ended: root.dataset.state === "ended", settled, round, divergence };
    root.dispatchEvent(new CustomEvent("sd-moment", { bubbles: true, detail }));
  }

  // Says one sentence about the latest round that is shown to screen readers.
  speak(settled) {
    if (settled === this.spoken) return;
    this.spoken = settled;
    if (this.steppedLane !== SPECULATIVE) return;
    const { trace } = this;
    this.speaker.say(settled ? roundWords(trace.entries(SPECULATIVE)[settled - 1].round) : openingWords(trace.start.run));
  }
}

for (const name of ["trace", "pieces", "player", "recording", "isOwn", "live"]) {
  Object.defineProperty(Stage.prototype, name, { get() { return this.shown[name]; } }); // those of the run that is shown
}

/** The parts of the stage that a lesson needs. The other parts are hidden while the lesson's run is shown. */
class Topic {
  constructor(root) {
    this.root = root;
    this.next = {};
    this.current = {}; // the topic of the run that is shown
  }

  /**
   * Set the topic of the next run. `focus` is the only lane to show, `figures` are the headline figures to show, and
   * `charts` is the only chart to show ("rounds" is the strip), or "none".
   */
  expect(topic) {
    this.next = topic;
  }

  /** Show the parts of a topic, or everything. */
  show(topic) {
    const { focus, figures, charts } = (this.current = topic);
    const { dataset } = this.root;
    for (const [name, value] of Object.entries({ focus, charts })) {
      if (value) dataset[name] = value;
      else delete dataset[name];
    }
    this.root.toggleAttribute("data-topic", Boolean(figures));
    for (const figure of this.root.querySelectorAll(".sd-figure")) {
      figure.hidden = Boolean(figures) && !figures.includes(figure.querySelector("[data-figure]").dataset.figure);
    }
    this.root.querySelector(".sd-figures").hidden = figures?.length === 0;
  }
}
