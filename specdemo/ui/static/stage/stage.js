// The stage receives the events of a run, keeps the clock, and makes every view draw the current moment.
// All figures come with the events; the browser does not compute any.

import { PHONE_PX, rolesOf } from "../common/dom.js";
import { Figures, PassBlocks } from "./figures.js";
import { Helps } from "./helps.js";
import { LaneScroll } from "./lane_scroll.js";
import { LaneView } from "./lanes.js";
import { GrowingLines, parseEvents } from "../common/ndjson.js";
import { Notice, Speaker } from "./notice.js";
import { keepTabInAddress } from "../common/page.js";
import { PageKeys, Player, setModelsRun, Transport } from "./player.js";
import { Plots } from "./plots.js";
import { Arrival, fetchRecording, hasSettings, isStill, keepRun, LastRun, nearest, REPEATS, Source } from "./recordings.js";
import { Selection } from "./selection.js";
import { linkTo } from "./share.js";
import { Pieces } from "./tokens.js";
import { Toolbar } from "./toolbar.js";
import { BASELINE, DRAFT, isArriving, SPECULATIVE, Trace } from "./trace.js";
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
    trigger("submit", { address: String(asked) });
  });
  const feed = () => stage.feed(props.value ?? "");
  watch("value", feed);
  feed();
  mounted = stage;
  keepTabInAddress();
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
  const isIdle = stage.root.dataset.state === "idle" && !stage.live && !stage.lent; // nothing has been started meanwhile
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

const REPLAY_MS = 2000; // a recording that plays in a queue stands still for so long before it begins again
const NOT_AWAITED = { awaited: null, live: false }; // no run is to come

class Stage {
  constructor(root, settings) {
    learnTables(settings);
    this.root = root;
    this.roles = rolesOf(root);
    this.trace = new Trace();
    this.pieces = new Pieces();
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
    this.lent = null; // the visitor's run while a lesson has the stage
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
    document.querySelector(".sd-header-tools")?.append(this.roles.tools);
    this.roles["show-discards"].addEventListener("change", ({ target }) => {
      root.toggleAttribute("data-all-discards", target.checked);
      this.reflow();
    });
    this.begin();
    this.fillWindow();
  }

  // Lets the style sheet make the first screen as high as the rest of the window, whatever is above the stage.
  fillWindow() {
    const place = () => this.root.style.setProperty("--top", `${this.root.getBoundingClientRect().top + scrollY}px`);
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

  /** Take the new value of the component; the value grows during a run. */
  feed(value) {
    const { anew, events } = this.lines.read(value);
    const { lent } = this;
    if (anew) {
      if (lent && isArriving(lent)) Object.assign(lent, NOT_AWAITED, { waiting: null }); // it has been stopped in the queue
      this.awaitRun();
    } else if (lent && isArriving(lent)) return this.takeAside(lent, events);
    else if (!this.live) return; // another run has replaced it on the stage
    this.takeMore(this.awaited ? this.firstOf(events) : events);
  }

  // Keeps what is on the stage until the first token of the new run arrives.
  awaitRun() {
    this.awaited = [];
    this.live = true;
    this.claim = {};
    this.notice.begin();
    this.player.pause();
    this.comeIntoView();
  }

  // Shows the progress of a run that has no tokens yet. Returns all of its events once a token or the end has arrived.
  firstOf(events) {
    for (const event of events) {
      if (event.over) return this.awaitNothing();
      if (event.type === "progress") this.take(event);
      else this.awaited.push(event);
      if (event.ahead) this.playMeanwhile(event);
    }
    const first = this.awaited;
    if (first.every(({ type }) => type === "start")) return [];
    this.begin();
    this.live = true;
    this.isOwn = !first.some(({ run }) => run?.watched);
    return first;
  }

  // The run that was awaited has been stopped before it began.
  awaitNothing() {
    Object.assign(this, NOT_AWAITED);
    this.notice.begin();
    return [];
  }

  /** Play a recording, again and again, while the visitor's run waits in the queue with this `progress` event. */
  async playMeanwhile(progress) {
    const { awaited, arrival, topic } = this;
    const isFirst = this.meanwhile !== awaited;
    this.meanwhile = awaited;
    if (isFirst && !this.recording) {
      const text = await fetchRecording(this.toolbar.base, arrival.name).catch(() => null);
      if (text === null || this.awaited !== awaited || this.lent) return; // the visitor's run or a lesson has the stage
      const { next } = topic;
      this.load(text, arrival.name);
      topic.expect(next); // it is that of the visitor's run
      Object.assign(this, { awaited, live: true });
      this.take(progress);
    }
    if (!this.recording) return;
    if (isFirst) arrival.say(`Recorded on ${this.trace.start.run.device}.`);
    if (isStill() && isFirst) this.player.seekEnd();
    else if (isFirst) this.player.play();
  }

  // The queue sends an update only when the wait has changed, so the recording begins again by itself.
  replayMeanwhile() {
    const { player, awaited } = this;
    const plays = () => awaited && this.awaited === awaited && this.meanwhile === awaited && this.player === player && player.atEnd;
    if (plays() && !isStill()) setTimeout(() => plays() && this.notice.latest.ahead && player.play(), REPLAY_MS);
  }

  /** Take more events of the current run. */
  takeMore(events) {
    for (const event of events) this.take(event);
    this.player.wake();
    if (!this.player.playing || this.trace.closed) this.redraw(); // otherwise the clock causes a drawing soon
    this.showState();
  }

  /**
   * Begin a run whose events do not come from the component. `recording` is the name of a built-in recording, or null;
   * `isOwn` is true for a run that this visitor made earlier.
   */
  beginOf(recording, isOwn = false) {
    this.begin();
    this.recording = recording;
    this.isOwn = isOwn;
    if (recording) this.root.dataset.recording = recording;
  }

  // Scrolls to the stage on a phone, where it is below the button that started the run.
  comeIntoView() {
    if (innerWidth > PHONE_PX || !this.root.offsetParent) return;
    const smooth = matchMedia("(prefers-reduced-motion: no-preference)").matches;
    this.root.scrollIntoView({ behavior: smooth ? "smooth" : "auto", block: "start" });
  }

  /** Play a finished run, given its events as NDJSON; see `beginOf`. */
  load(text, recording, isOwn = false) {
    this.beginOf(recording, isOwn);
    for (const event of parseEvents(text)) this.take(event);
    this.player.play();
  }

  /**
   * Show a recording in the way that a lesson needs: with a `topic` (see `Topic`) and a `pace` (the value of a pace
   * button). `hold` pauses it after this number of rounds, or at its "end"; `round` opens the round with this index (from
   * 0), and `divergence` goes to the first token at which the draft model alone differs from the target. The visitor's run
   * is kept; see `giveBack`.
   */
  async present({ recording, pace, hold, round, divergence }, topic) {
    this.lend();
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

  /** Keep the visitor's run while a lesson has the stage; its events may go on arriving. */
  lend() {
    if (this.lent) return;
    const { trace, pieces, recording, isOwn, live, awaited, tour, player, transport, selection, notice, source } = this;
    this.lent = {
      ...{ trace, pieces, recording, isOwn, live, awaited, tour },
      time: player.time,
      isPlaying: player.playing,
      pace: String(transport.pace),
      round: selection.microscope.open ? selection.index : null,
      waiting: notice.isWaiting ? notice.latest : null, // the latest progress event
      error: notice.error,
      line: source.state(),
      kept: this.root.dataset.kept,
    };
  }

  /** Take events of the visitor's run while a lesson has the stage. */
  takeAside(lent, events) {
    if (events.some(({ over }) => over)) return Object.assign(lent, NOT_AWAITED, { waiting: null });
    const news = events.filter(({ type }) => type !== "progress");
    lent.waiting = lent.awaited && !news.length ? (events.at(-1) ?? lent.waiting) : null;
    if (lent.awaited && news.length) {
      news.unshift(...lent.awaited);
      const isOwn = !news[0].run?.watched;
      const atStart = { recording: null, isOwn, awaited: null, tour: null, time: 0, isPlaying: true, round: null };
      Object.assign(lent, { trace: new Trace(), pieces: new Pieces(), line: null, kept: undefined, error: null, ...atStart });
    }
    for (const event of news) {
      if (event.type === "error") {
        lent.error = event.message;
        lent.trace.closed = true;
      } else lent.trace.take(event);
      if (event.pieces) lent.pieces.add(event.pieces, event.specials);
      if (event.type === "end" && lent.isOwn) keepRun(lent.trace.events);
    }
    this.tell();
  }

  /** Show the visitor's run again as it was before the lessons; the run of a lesson is stopped. */
  giveBack() {
    const { lent } = this;
    if (!lent) return;
    if (isArriving(this)) this.toolbar.stopRun();
    this.topic.expect({});
    this.begin(lent);
    this.lent = null;
    const { recording, isOwn, live, awaited, tour, line, error, waiting } = lent;
    Object.assign(this, { recording, isOwn, live, awaited, tour });
    if (recording) this.root.dataset.recording = recording;
    if (lent.kept) this.root.dataset.kept = lent.kept;
    this.transport.setPace(lent.pace);
    if (this.trace.start) this.start(this.trace.start);
    if (line) this.source.restore(line);
    this.player.pause();
    this.player.seek(lent.time);
    if (lent.round !== null) this.selection.open(lent.round);
    if (lent.isPlaying && !this.player.atEnd) this.player.play();
    if (waiting) this.take(waiting);
    if (error !== null) this.fail(error);
    if (!this.trace.start && !live && error === null) this.greet();
    this.showState();
  }

  /** Show something on an empty stage: the last run of this browser, else the recording of the prompt in the widgets. */
  greet() {
    const { arrival, lastRun, toolbar } = this;
    if (!lastRun.show() && toolbar.offers(arrival.name)) arrival.show();
  }

  /** Stop the current run, if there is one, and leave the stage empty. */
  clear() {
    this.toolbar.stopRun();
    this.begin();
  }

  /** Empty the stage for another run, whose events may have arrived already. */
  begin({ trace, pieces } = { trace: new Trace(), pieces: new Pieces() }) {
    this.player?.pause();
    this.live = false;
    this.awaited = null; // the events of a run that has no tokens yet
    this.claim = {}; // changes when another run takes the stage
    this.recording = null;
    this.isOwn = false; // true for a run that this visitor made with the page's models
    for (const note of [this.lastRun, this.arrival]) note.leave();
    delete this.root.dataset.recording;
    this.source.show(null);
    this.topic.begin();
    this.tour = null; // slows the first rounds of a predicted run and explains them, see prediction.js
    this.spoken = 0; // the number of rounds when the latest sentence was spoken
    this.notice.begin();
    this.trace = trace;
    this.pieces = pieces;
    for (const view of Object.values(this.lanes)) view.clear(this.pieces);
    this.scroll.setFollowing(true);
    this.player = new Player({
      trace: this.trace,
      pace: this.transport.pace,
      onTime: () => this.redraw(),
      onState: () => {
        this.showState();
        this.replayMeanwhile();
      },
      slowedAt: (time) => this.tour?.slowedAt(time) ?? null,
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
    if (event.type === "progress") {
      this.notice.wait(event, event.ahead > 0 && this.recording !== null);
      this.showState();
    } else if (event.type === "error") this.fail(event.message);
    else {
      this.trace.take(event);
      if (event.pieces) this.pieces.add(event.pieces, event.specials);
      if (event.type === "start") this.start(event);
      if (event.type === "end" && event.finish === "stopped") this.player.seekEnd();
      if (event.type === "end" && this.live && this.isOwn && !this.lent) keepRun(this.trace.events);
    }
  }

  start({ run }) {
    for (const [name, view] of Object.entries(this.lanes)) {
      const runs = this.trace.lanes.has(name);
      view.article.hidden = name === DRAFT && !runs;
      if (runs) view.setPrompt(run.config.prompt, run.config.mode);
    }
    this.root.toggleAttribute("data-three", this.trace.lanes.has(DRAFT));
    this.notice.open(openingWords(run));
    this.source.show(run);
    this.toolbar.enable(true);
    this.player.play();
  }

  fail(message) {
    this.notice.fail(message);
    this.trace.closed = true;
    this.player.seekEnd();
    this.showState();
  }

  /** Draw everything at the clock's time. */
  redraw() {
    const { trace, player } = this;
    const state = trace.stateAt(player.time);
    const totals = trace.totalsAt(player.time);
    const settled = state[SPECULATIVE]?.settled ?? 0;
    for (const name of Object.keys(state)) this.lanes[name].show(trace.entries(name), state[name], player);
    this.passes.show(state, trace.start?.run.watched?.rounds === false);
    this.lanes[BASELINE].markDivergence(totals?.divergence ?? null);
    this.lanes[DRAFT].markDivergence(totals?.draft_divergence ?? null);
    const isFinal = totals !== null && totals === trace.end?.totals;
    this.figures.show(totals, trace.start && this.rule, isFinal ? trace.end : null, trace.trustAt(player.time));
    this.helps.show(totals, trace.start?.run ?? null);
    this.selection.follow(player.time);
    this.selection.strip.show(trace.entries(SPECULATIVE), settled);
    this.plots.show(state, totals);
    this.light(trace.phaseAt(player.time));
    this.transport.showTime(state[this.steppedLane]?.settled ?? 0);
    this.tour?.show(player.time);
    this.speak(settled);
    this.scroll.follow();
    this.showPasses();
  }

  showPasses() {
    for (const name of this.trace.lanes.keys()) this.lanes[name].showPass(this.player);
  }

  /** Lay the lanes out again, because lines may break elsewhere now. */
  reflow() {
    this.scroll.reflow();
  }

  light(phase) {
    for (const item of this.root.querySelectorAll("[data-phase]")) {
      item.toggleAttribute("data-lit", item.dataset.phase === phase);
    }
  }

  /** Show in the notice and the controls whether the run plays, waits or has ended. */
  showState() {
    const { player, trace, root, notice } = this;
    const state = notice.state(Boolean(trace.start) && !this.awaited, Boolean(trace.end) && player.atEnd && !this.awaited);
    root.dataset.state = state;
    root.toggleAttribute("data-running", player.playing);
    setModelsRun(isArriving(this) || (this.lent !== null && isArriving(this.lent)));
    this.plots.wake();
    this.showPasses();
    this.transport.showState();
    notice.show(state);
    if (state === "ended") {
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

  // Says one sentence about the latest round that is shown, on the page and to screen readers.
  speak(settled) {
    if (settled === this.spoken) return;
    this.spoken = settled;
    if (this.steppedLane !== SPECULATIVE) return;
    const { trace } = this;
    const words = settled ? roundWords(trace.entries(SPECULATIVE)[settled - 1].round) : openingWords(trace.start.run);
    this.notice.say(words);
    this.speaker.say(words);
  }
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

  /** Begin with another run: apply the topic that was set for it, or show everything. */
  begin() {
    const { focus, figures, charts } = (this.current = this.next);
    this.next = {};
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
