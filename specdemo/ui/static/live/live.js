// Runs on the static copy: the models run in this browser. The stage shows the events as it shows those of a server.

import { onSubmit, rolesOf } from "../common/dom.js";
import { stageOfPage } from "../stage/stage.js";

const READY_MS = 10_000; // after it, a run does not wait for the service worker
const form = document.getElementById("live");
const [run, stop] = ["run", "stop"].map((id) => document.getElementById(id));
const settings = form.querySelector("details");
const roles = rolesOf(form);
const base = new URL(form.dataset.files, document.baseURI).href;
const isReady = offline(); // later visits find the page and its modules in this browser
let worker = null;
let lines = "";
isReady.then(() => (worker ??= opened())); // its modules have loaded when the first run begins

fill(new URLSearchParams(location.search));
onSubmit(form, start);
form.addEventListener("invalid", () => (settings.open = true), { capture: true }); // a browser shows no message on a hidden field
stop.addEventListener("click", () => worker?.postMessage({ type: "stop" }));
form.addEventListener("keydown", ({ key, ctrlKey, metaKey }) => {
  if (key === "Enter" && (ctrlKey || metaKey)) form.requestSubmit();
});

// A link sets the fields, as it sets those of a server's page.
function fill(asked) {
  const { prompt, mode, k, tokens } = form.elements;
  const choose = (select, value) => [...select.options].some((option) => option.value === value) && (select.value = value);
  prompt.value = asked.get("prompt") ?? prompt.value;
  choose(mode, asked.get("mode"));
  choose(k, asked.get("k"));
  const number = Number(asked.get("max_new_tokens"));
  if (number) tokens.value = Math.round(Math.min(tokens.max, Math.max(tokens.min, number)));
}

async function start() {
  if (run.disabled) return;
  const { prompt, k, tokens, mode } = form.elements;
  if (!prompt.value.trim()) return show({ type: "error", message: "The prompt is empty; write something for the models to continue." });
  const config = {
    prompt: prompt.value,
    mode: mode.value,
    k: k.value === "auto" ? "auto" : Number(k.value),
    ...{ temperature: 0, top_k: 0, top_p: 1, rule: "greedy", drafter: "draft-model", script: "", seed: 0 },
    max_new_tokens: Number(tokens.value),
    ...{ baseline: true, draft_alone: false, repeats: 1 },
  };
  settings.open = false;
  setRunning(true);
  stageOfPage().source.repeat.dataset.only = "live"; // a server measures a run several times
  lines = "";
  show({ type: "progress", text: "Loading the models", fraction: 0 });
  await Promise.race([isReady, new Promise((done) => setTimeout(done, READY_MS))]);
  worker ??= opened();
  worker.postMessage({ type: "run", base, config });
}

function opened() {
  const opening = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  opening.onmessage = ({ data }) => {
    if (data.lines) feed(data.lines);
    if (data.ended) end(data.facts);
  };
  opening.onerror = ({ message }) => {
    opening.terminate();
    worker = null; // the next run opens the models again
    if (!run.disabled) return;
    show({ type: "error", message: `The models stopped working (${message || "the files did not load"}). Press Run to try again.` });
    end();
  };
  return opening;
}

const show = (event) => feed(`${JSON.stringify(event)}\n`);

function feed(more) {
  lines += more;
  stageOfPage().feed(lines);
}

function setRunning(isRunning) {
  run.disabled = isRunning;
  stop.disabled = !isRunning;
}

function end(facts) {
  setRunning(false);
  if (!facts) return;
  roles.about.textContent = aboutWords(facts);
  if (facts.isKept) navigator.storage.persist?.(); // otherwise a browser deletes the models when its disk is full
}

function aboutWords({ threads, isKept }) {
  const number = threads === 1 ? "one thread" : `${threads} threads`;
  const where = `The models run on your computer with ${number}, and the figures are your computer's.`;
  const kept = isKept ? "" : " This browser does not keep files, so the next visit downloads the models again.";
  if (crossOriginIsolated) return where + kept;
  const more = navigator.serviceWorker?.controller ? "Reload this page for more threads, which are faster." : "More threads, which are faster, need a page with https.";
  return `${where} ${more}${kept}`;
}

/** Keep the files of the page for visits without a network, and get the headers that threads need; see offline.js. */
async function offline() {
  try {
    const isKept = Boolean(navigator.serviceWorker.controller);
    const controls = isKept || new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true }));
    await navigator.serviceWorker.register(new URL("../../offline.js", import.meta.url));
    await controls; // what is fetched earlier passes it by
    if (isKept) return;
    const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
    const recordings = [...document.querySelectorAll("[data-recording-name]")].map(({ dataset }) => `specdemo-traces/${dataset.recordingName}.ndjson`);
    await Promise.all([location.href, ...loaded, ...recordings].map((address) => fetch(address).catch(() => null)));
  } catch {
    // Without https, or in a private window, the page works while the network does.
  }
}
