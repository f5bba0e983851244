// The card "Predict the result, then run" before a visitor's first run, and the comparison at its end. A class predicts the same, and the server measures it.

import { element, onDisabled, onSubmit, PHONE_PX, recall, remember, rolesOf, write } from "../common/dom.js";
import { currentTab, openTab, startRun } from "../common/page.js";
import { sum } from "./charts.js";
import { stageOfPage } from "./stage.js";
import { SPECULATIVE } from "./trace.js";
import { isDisturbed, isSlower, measuredTimes, share } from "../common/words.js";

const KEY = "specdemo-prediction"; // set once the card has been answered or skipped
const OWN_SETTINGS = ["prompt", "k"]; // an address that sets one of these starts with its own run
const LENGTH = 4; // the draft length k that the questions name
const SHORT = 1; // the draft length to try after a slow run
const LONG = 12; // and after a fast one
const MARGIN = 1.1; // relative difference in speed of two identical runs on a busy machine
const SETUP = `Draft length k = ${LENGTH}.`;

/** The questions of the card, which a class can be asked too; the server then judges the run by the same rules. `option(end)` is
 * the index of the measured option, or null if the figures of the run, given as the event of its end, support none.
 */
export const PREDICTIONS = [
  {
    name: "run-speed",
    text: "Is this run faster or slower than the target alone?",
    setup: SETUP,
    options: ["Faster", "Slower"],
    option: ({ totals: { speedup }, doubt }) => (speedup === null || doubt ? null : Number(isSlower(speedup))),
  },
  {
    name: "run-survivors",
    text: `How many of the ${LENGTH} draft tokens in a round are accepted on average?`,
    setup: SETUP,
    options: Array.from({ length: LENGTH + 1 }, (_, count) => `${count} of ${LENGTH}`),
    option: ({ totals }) => roundedOrNull(meanAccepted(totals)),
  },
];

/** The mean number of accepted draft tokens per round; null before the first round. */
export function meanAccepted({ accepted_by_position: accepted, passes }) {
  return passes ? accepted.reduce((sum, count) => sum + count, 0) / passes : null;
}

function roundedOrNull(value) {
  return value === null ? null : Math.round(value);
}

/** The predictions, as indices of options, compared with the figures of the run, which are those of its `end` event. */
export function comparisonWords(answers, end) {
  const { speedup, alpha_compared: alpha } = end.totals;
  const speed = speedup === null ? "" : `speedup ${measuredTimes(end)}, `;
  // The page shows α too, which is higher because tokens after a rejected one are not compared.
  const rate = alpha === null ? "" : ` (α ${share(alpha)}: compared tokens only)`;
  return `${judgedWords(answers, end)} ${predictionWords(answers)} Measured: ${speed}${acceptedWords(end.totals, LENGTH)} accepted${rate}.`;
}

function judgedWords(answers, end) {
  const verdicts = PREDICTIONS.map(({ option }, index) => ({ [null]: "– no verdict", [answers[index]]: "✓ right" })[option(end)] ?? "✗ wrong");
  return `Speed: ${verdicts[0]}. Accepted tokens: ${verdicts[1]}.`;
}

function predictionWords([speed, count]) {
  return `Predicted: ${PREDICTIONS[0].options[speed].toLowerCase()}, ${count} of ${LENGTH} accepted.`;
}

function acceptedWords(totals, length) {
  return `${meanAccepted(totals).toFixed(1)} of ${length}`;
}

function measuredWords(end, length) {
  const speed = end.totals.speedup === null ? "" : `, at ${measuredTimes(end)} the speed of the target alone`;
  return `Measured: ${acceptedWords(end.totals, length)} draft tokens accepted per round${speed}.`;
}

/** The result of a second run, with draft length `length`, next to that of the first one; both are `end` events. */
export function triedWords(length, end, before) {
  const speed = before.totals.speedup === null ? "" : ` With k = ${LENGTH}: ${measuredTimes(before)}.`;
  return `k = ${length}. ${measuredWords(end, length)}${speed}`;
}

/**
 * The draft length of a second run, with the words of its button. They promise a result only if an estimate is clear:
 * `estimate(length)` is a speedup, or null if it is unknown.
 */
export function nextTry({ speedup }, estimate) {
  const wasSlower = isSlower(speedup);
  const length = wasSlower ? SHORT : LONG;
  const expected = speedup === null ? null : estimate(length);
  if (expected !== null && wasSlower && !isSlower(expected / MARGIN)) return { length, words: `Make it faster: k = ${length}` };
  if (expected !== null && !wasSlower && isSlower(expected * MARGIN)) return { length, words: `Make it slower: k = ${length}` };
  return { length, words: `Try k = ${length}` };
}

/**
 * The estimated speedup of a finished run, given as a `Trace`, if all its drafts had `length` tokens: from the mean times
 * of its own rounds, the measured v(n), and its acceptance rate at each position (α if none was compared there). Null
 * without these figures.
 */
export function estimatedSpeedup(trace, length) {
  const { totals } = trace.end;
  const { accepted_by_position: accepted, compared_by_position: compared, alpha_compared: alpha } = totals;
  const drafted = trace.entries(SPECULATIVE).map(({ round }) => round.drafted.length);
  const v = trace.start.run.calibration?.v ?? [];
  if (alpha === null || !totals.baseline_tokens || length >= v.length) return null;
  let [survival, tokens] = [1, 1]; // the probability that all draft tokens so far are accepted, and the expected tokens
  for (let place = 0; place < length; place += 1) {
    survival *= compared[place] ? accepted[place] / compared[place] : alpha;
    tokens += survival;
  }
  const draftS = (length * totals.draft_s) / sum(drafted);
  const verifyS = (v[length] * totals.verify_s) / sum(drafted.map((count) => v[count]));
  const roundS = draftS + verifyS + totals.other_s / totals.passes;
  return (tokens * totals.baseline_seconds) / totals.baseline_tokens / roundS;
}

/** Called once by the Gradio component. */
export function mountPrediction({ element: host, trigger, settings }) {
  const run = (length) => startRun(trigger, String(new URLSearchParams({ k: length })));
  new Prediction(host.querySelector(".sd-prediction"), settings.asks, run);
}

class Prediction {
  /**
   * `asks` is false on pages whose models do not draft as the page says. `run(length)` starts a run with this
   * draft length and the visitor's other settings.
   */
  constructor(root, asks, run) {
    this.roles = rolesOf(root);
    this.run = run;
    this.isDone = !asks || recall(KEY) !== null;
    // The next run: `{ answers }` to the card, `{ ofClass }` if a class has predicted it, or `{ length, first }` of a second
    // run with another draft length, after a first one that ended with this event.
    this.expected = null;
    this.current = null; // the same for the run on the stage, with its `trace`
    const { roles } = this;
    roles.questions.append(...PREDICTIONS.map(questionField));
    onSubmit(roles.form, () => this.answer());
    roles.skip.addEventListener("click", () => this.skip());
    roles.card.addEventListener("cancel", () => this.skip());
    roles.close.addEventListener("click", () => {
      this.leave();
      focusRun();
    });
    roles.next.addEventListener("click", () => {
      this.onNext();
      focusRun();
    });
    document.addEventListener("click", (event) => this.ask(event), true);
    document.addEventListener("sd-class-run", ({ detail }) => this.expectOfClass(detail.isExpected));
    document.addEventListener("sd-moment", () => this.follow());
    root.dataset.ready = "true";
  }

  /** Ask before the visitor's first run, in place of starting it. */
  ask(event) {
    if (this.isDone || !event.target.closest("#run") || currentTab() !== "run") return;
    const asked = new URLSearchParams(location.search);
    if (OWN_SETTINGS.some((name) => asked.has(name))) return;
    event.stopPropagation();
    this.roles.card.showModal();
  }

  finish(outcome) {
    this.isDone = true;
    remember(KEY, outcome);
    this.roles.card.close();
    focusRun();
  }

  skip() {
    this.finish("skipped");
    document.querySelector("#run").click();
  }

  answer() {
    this.finish("answered");
    const { elements } = this.roles.form;
    this.start({ answers: PREDICTIONS.map(({ name }) => Number(elements[name].value)) });
  }

  /** Expect the run that a class has predicted, or expect none any more, because it was stopped before it began. */
  expectOfClass(isExpected) {
    this.isDone = true;
    if (isExpected) this.expect({ ofClass: true });
    else this.forget();
  }

  /** Expect no run any more when the job ends, because it may end before it begins; Gradio then disables `stop`. */
  followJob(stop) {
    const job = onDisabled(stop, () => {
      job.disconnect();
      this.forget();
    });
  }

  forget() {
    if (this.expected) this.showLine(false);
    this.expected = null;
  }

  start(expected) {
    this.expect(expected);
    this.followJob(document.querySelector("#stop"));
    this.run(this.expected.length);
  }

  expect(expected) {
    this.expected = { length: LENGTH, ...expected, before: stageOfPage().own.trace };
    this.roles.next.hidden = true;
    this.say(this.predictedWords(this.expected));
    this.showLine(true); // with the press, so that nothing moves when the run begins
  }

  follow() {
    const stage = stageOfPage();
    const { expected } = this;
    if (!expected && !this.current) return;
    // The visitor's run, which may go on arriving while a lesson has the stage; another run may still be in its place.
    const { own } = stage;
    if (expected && own.live && own.trace !== expected.before) this.begin(stage, own);
    if (!this.current || (stage.shown !== own && this.current.trace === own.trace)) return;
    const { trace } = stage;
    const { state } = stage.root.dataset;
    const isStopped = state === "error" || trace.end?.finish === "stopped";
    if (trace !== this.current.trace || isStopped) this.leave(); // another run has taken the place of this one
    else if (state === "ended") this.compare(trace);
  }

  begin(stage, own) {
    const { trace } = own;
    this.current = { ...this.expected, trace, isCompared: false };
    this.expected = null;
    own.isSlow = this.current.length === LENGTH;
    stage.transport.showState();
    if (innerWidth <= PHONE_PX) this.roles.line.scrollIntoView(); // the stage, to which the page has scrolled, is below
  }

  predictedWords({ answers, ofClass, length }) {
    if (ofClass) return "The class has predicted this run.";
    return answers ? predictionWords(answers) : `Running with k = ${length}.`;
  }

  compare(trace) {
    const { answers, ofClass, length, first, isCompared } = this.current;
    const { end } = trace;
    if (isCompared) return; // the end is shown again
    this.current.isCompared = true;
    if (answers && isDisturbed(end)) {
      this.offer(comparisonWords(answers, end), "Run it again", () => this.start({ answers }));
    } else if (answers) {
      const next = nextTry(end.totals, (tried) => estimatedSpeedup(trace, tried));
      this.offer(comparisonWords(answers, end), next.words, () => this.start({ length: next.length, first: end }));
    } else if (!ofClass) this.say(triedWords(length, end, first));
    else this.offer(measuredWords(end, length), "Show the students' answers", () => openTab("class"));
  }

  offer(words, next, act) {
    this.say(words);
    this.roles.next.textContent = next;
    this.roles.next.hidden = false;
    this.onNext = act;
  }

  leave() {
    this.current = null;
    this.showLine(false);
  }

  showLine(isShown) {
    this.roles.line.hidden = !isShown;
    document.body.toggleAttribute("data-predicted", isShown);
  }

  say(words) {
    write(this.roles.words, words);
  }
}

/** Move the focus to the text of the run, because the control that had it is hidden or disabled. */
function focusRun() {
  stageOfPage().lanes[SPECULATIVE].box.focus({ preventScroll: true });
}

function questionField({ name, text, options }) {
  const labels = options.map((option, value) => {
    const input = element("input", "");
    Object.assign(input, { type: "radio", name, value, required: true });
    return element("label", "", input, element("span", "", option));
  });
  return element("fieldset", "", element("legend", "", text), ...labels);
}
