// The worker that runs the models: loads the pair before the first run, and sends the events of each run as NDJSON.

import { calibrate, chooseThreads, lanesOf, race } from "./decoding.js";
import { FixedLength, PlannedLength } from "./lengths.js";
import { instanceOf, memoryFor, Passes } from "./passes.js";
import { RunLog } from "./run_log.js";
import { Tokenizer } from "./tokenizers-0.2.0.min.mjs";
import { fetchPlan, loadPair } from "./weights.js";
import { counted } from "../common/words.js";

const SEND_MS = 66; // the page draws about 15 times per second
const STOPPED = { type: "progress", text: "Stopped before it began", fraction: 0, over: true };
const MEGABYTE = 1e6;

let pair = null;
let memory = null; // also that of a download that did not end
let threads = null; // promised once: a thread that starts a second time would share the memory of the first one
let stopping = new AbortController();

onmessage = async ({ data }) => {
  if (data.type === "stop") return stopping.abort();
  stopping = new AbortController();
  const { signal } = stopping;
  try {
    pair ??= await openPair(data.base, signal);
    await run(pair, data.config, signal);
  } catch (error) {
    send(signal.aborted ? STOPPED : { type: "error", message: error.message });
  }
  postMessage({ ended: true, facts: pair?.facts });
};

const waiting = [];
let sentAt = 0;

function send(event) {
  waiting.push(`${JSON.stringify(event)}\n`);
  if (event.type === "round" && performance.now() - sentAt < SEND_MS) return;
  sentAt = performance.now();
  postMessage({ lines: waiting.splice(0).join("") });
}

const progress = (text, fraction) => send({ type: "progress", text, fraction });

// Lets messages of the page arrive.
const pause = () => new Promise((done) => setTimeout(done));

async function openPair(base, signal) {
  progress("Loading the models", 0);
  const plan = await fetchPlan(base);
  memory ??= memoryFor(plan);
  const report = throttled((bytes, total) => progress(`Loading the models: ${Math.round(bytes / MEGABYTE)} of ${Math.round(total / MEGABYTE)} MB`, bytes / total));
  const { tokens, isKept } = await loadPair(plan, base, memory, report, signal);
  progress("Measuring pass costs", 1);
  await pause();
  const { module, kind } = await compiled();
  const canShare = globalThis.crossOriginIsolated && "SharedArrayBuffer" in globalThis; // WebKitGTK isolates without sharing
  const count = canShare ? Math.min(navigator.hardwareConcurrency, plan.threads) : 1;
  const passes = new Passes(await instanceOf(module, memory, plan, 0), memory, plan, count);
  await (threads ??= startThreads(count, { module, memory, plan }));
  chooseThreads(passes);
  const tokenizer = new Tokenizer(tokens.tokenizer, tokens.tokenizer_config);
  const facts = { isKept, kind, threads: passes.threads };
  return { plan, passes, tokenizer, pieces: tokens.pieces, calibration: calibrate(passes, plan.max_k), facts };
}

function throttled(act) {
  let last = 0;
  return (...values) => {
    if (performance.now() - last < SEND_MS) return;
    last = performance.now();
    act(...values);
  };
}

/** The module of this browser: with relaxed instructions if it has them. */
async function compiled() {
  for (const kind of ["relaxed", "strict"]) {
    const response = await fetch(new URL(`${kind}.wasm`, import.meta.url));
    const module = await WebAssembly.compile(await response.arrayBuffer()).catch(() => null);
    if (module) return { module, kind };
  }
  throw new Error("This browser cannot run the models, because it lacks WebAssembly vectors; update the browser.");
}

async function startThreads(count, parts) {
  for (let me = 1; me < count; me += 1) await started({ ...parts, me });
}

function started(parts) {
  const worker = new Worker(new URL("./thread.js", import.meta.url), { type: "module" });
  return new Promise((done, failed) => {
    worker.onmessage = done;
    worker.onerror = () => failed(new Error("A thread did not start. Reload this page."));
    worker.postMessage(parts);
  });
}

async function run({ plan, passes, tokenizer, pieces, calibration, facts }, config, signal) {
  const [before, after] = config.mode === "chat" ? plan.chat : ["", ""];
  const { ids: promptIds } = tokenizer.encode(before + config.prompt + after, { add_special_tokens: config.mode === "raw" });
  if (promptIds.length > plan.max_prompt) {
    const tokens = promptIds.length.toLocaleString("en");
    throw new Error(`The prompt has ${tokens} tokens, but in a browser at most ${plan.max_prompt} are possible; shorten the prompt.`);
  }
  const room = plan.capacity - promptIds.length - plan.max_k - 1;
  const blank = {
    config: { ...config, max_new_tokens: Math.min(config.max_new_tokens, room) },
    prompt_ids: promptIds,
    pair: plan.run.pair,
    device: `a browser, ${counted(facts.threads, "thread")}`,
    precision: plan.run.precision,
    versions: plan.run.versions,
    started_at: new Date().toISOString().replace(/\.\d+Z$/, "+00:00"),
    calibration,
    lanes: {},
    pieces: Object.fromEntries([...new Set(promptIds)].map((id) => [id, pieces[id]])),
    specials: plan.specials.filter((id) => promptIds.includes(id)),
    totals: {},
    version: 1,
    arithmetic: plan.run.arithmetic,
    watched: null,
    repeats: [],
  };
  const length = config.k === "auto" ? new PlannedLength(calibration, plan.max_k) : new FixedLength(config.k);
  const settings = { promptIds, maxNewTokens: blank.config.max_new_tokens, eosIds: plan.eos, length, isStopped: () => signal.aborted };
  const log = new RunLog(blank, plan.specials, (id) => pieces[id]);
  let hasStarted = false;
  let pausedAt = performance.now();
  for (const { lane, value } of race(lanesOf(passes, settings))) {
    if (value.share !== undefined) {
      if (!hasStarted) progress("Processing the prompt", value.share);
    } else {
      if (!hasStarted) send(log.start());
      hasStarted = true;
      send(log.round(lane, value));
    }
    if (performance.now() - pausedAt < SEND_MS) continue;
    await pause();
    pausedAt = performance.now();
  }
  send(hasStarted ? log.end() : STOPPED);
}
