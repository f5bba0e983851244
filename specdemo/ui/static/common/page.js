// The page around the stage: the tab, its part and the lesson in the address, and the settings panel.

import { button, recallInTab, rememberInTab } from "./dom.js";

const BUTTON_ID = /^tab-(\w+)-button$/;
const IN_ADDRESS = /^#tab=(\w+)(?:&part=([\w-]+))?$/;
const TAB_OF = { lesson: "learn", question: "learn", proof: "proof" }; // the tab that a parameter of the address opens
const PANEL = "#more";
const MOUNT_POLL_MS = 20;
const MAX_POLLS = 500;
const SETTLE_MS = 2000; // the time that a tab takes to reach its final height
const KEPT_KEY = "specdemo-settings";
/** The key of the class that this window controls, in the storage of the tab. */
export const CLASS_KEY = "specdemo-teacher";
const ABOUT_AUTO = "Chooses the draft length from the measured costs; drafts nothing if no draft would save time.";

/** Return a button that opens a tab of the page, or only its text if the page has no tabs. */
export function tabOpener(name, words) {
  return buttonOf(name) ? button("sd-opener", words, () => openTab(name)) : words;
}

export function openTab(name) {
  buttonOf(name)?.click();
}

const jobChips = new Map(); // a button for each tab with a job

/** Say on all other tabs that a job of this visitor runs in the tab `name`; null if it has ended. */
export function tellJob(name, words) {
  const chip = jobChips.get(name) ?? button("sd-button sd-job-chip", words, () => openTab(name));
  jobChips.set(name, chip);
  chip.dataset.job = name;
  chip.title = "In progress; open its tab";
  if (words === null) chip.remove();
  else if (!chip.isConnected) document.querySelector(".sd-header-tools")?.prepend(chip);
  document.body.toggleAttribute("data-working", [...jobChips.values()].some((one) => one.isConnected));
}

/** Have Gradio build the content of a tab, which it does when the tab is first opened; `mark` selects a part of it. */
export async function mountTab(name, mark) {
  const shown = currentTab();
  openTab(name);
  while (!document.querySelector(mark)) await new Promise((resolve) => setTimeout(resolve, MOUNT_POLL_MS));
  openTab(shown);
}

/**
 * Put the lesson and the question of the quiz that are shown into the address, so that the address links to them. Back
 * leads from a lesson to the one before.
 */
export function noteLesson(lesson, question) {
  const url = new URL(location.href);
  const isOther = url.searchParams.get("lesson") !== lesson;
  url.searchParams.set("lesson", lesson);
  url.searchParams.delete("trace"); // it belonged to the lesson that the address named before
  if (question) url.searchParams.set("question", question);
  else url.searchParams.delete("question");
  if (isOther) history.pushState(history.state, "", url);
  else history.replaceState(history.state, "", url);
}

/** True if the address leads to the lessons, and not to another tab. */
export function leadsToLessons({ search, hash }) {
  const tab = tabIn(hash);
  return tab === "learn" || (tab === null && new URLSearchParams(search).has("lesson"));
}

/** Put the recorded proof that is shown into the address; null removes it. */
export function noteProof(name) {
  const url = new URL(location.href);
  if (name) url.searchParams.set("proof", name);
  else url.searchParams.delete("proof");
  history.replaceState(history.state, "", url);
}

/**
 * Open the tab that the address names, and show the part of it, now, after Back or Forward, and after a link within the
 * page; also put each newly opened tab into the address, and into `data-tab` of the body for the styles.
 */
export function keepTabInAddress() {
  // The tab to open if the address names none.
  const asked = new URLSearchParams(location.search);
  const first = Object.entries(TAB_OF).find(([name]) => asked.has(name))?.[1] ?? currentTab();
  const tell = () => (document.body.dataset.tab = currentTab());
  const tabs = document.getElementById("tabs");
  if (tabs) {
    tell();
    new MutationObserver(tell).observe(tabs, { subtree: true, attributeFilter: ["aria-selected"] });
  }
  const follow = () => {
    const name = tabIn(location.hash) ?? first;
    if (name !== currentTab()) openTab(name);
    const part = partIn(location.hash);
    if (part) showPart(part);
  };
  follow();
  addEventListener("popstate", follow);
  addEventListener("click", (event) => {
    const { target } = event;
    const link = target.closest?.("a[href^='#']");
    if (link) {
      // Gradio sets a base address, to which the browser would resolve the link, so it would load the page again.
      event.preventDefault();
      location.hash = link.getAttribute("href");
    }
    const name = target.closest?.("[role=tab]")?.id.match(BUTTON_ID)?.[1];
    if (name && name !== (tabIn(location.hash) ?? first)) history.pushState(null, "", addressOf(name));
  });
}

/** The tab that the fragment of an address names, or null if it names none. */
export function tabIn(hash) {
  return hash.match(IN_ADDRESS)?.[1] ?? null;
}

/** The chart or the section of a tab that the fragment of an address names, or null if it names none. */
export function partIn(hash) {
  return hash.match(IN_ADDRESS)?.[2] ?? null;
}

/** Scroll to a chart or section once it is visible and can be used, and move the focus to it. */
async function showPart(name) {
  const find = () => document.querySelector(`:is([data-plot="${name}"], [data-section="${name}"]):not([inert] *)`);
  for (let polls = 0; !find()?.checkVisibility(); polls += 1) {
    if (polls === MAX_POLLS) return; // there is no such part, or the current lesson hides it
    await new Promise((resolve) => setTimeout(resolve, MOUNT_POLL_MS));
  }
  const part = find();
  part.tabIndex = -1;
  part.scrollIntoView();
  part.focus({ preventScroll: true });
  // The parts above get their final height only when they are drawn.
  const follow = new ResizeObserver(() => part.scrollIntoView());
  const stop = () => follow.disconnect();
  follow.observe(document.body);
  for (const kind of ["wheel", "touchstart", "keydown"]) addEventListener(kind, stop, { once: true, passive: true });
  setTimeout(stop, SETTLE_MS);
}

// Returns the address of a tab. Some parameters open a tab, so the other tabs do not have them in theirs.
function addressOf(name) {
  const url = new URL(location.href);
  for (const [part, tab] of Object.entries(TAB_OF)) if (name !== tab) url.searchParams.delete(part);
  url.hash = `tab=${name}`;
  return url;
}

/** The name of the open tab; undefined on a page without tabs. */
export function currentTab() {
  return document.querySelector("[role=tab][aria-selected=true]")?.id.match(BUTTON_ID)?.[1];
}

function buttonOf(name) {
  return document.getElementById(`tab-${name}-button`);
}

/** Show the sentences about the chosen settings. */
export function showAbout(chosen) {
  for (const words of document.querySelectorAll("[data-choice]")) words.hidden = !chosen.includes(words.dataset.choice);
}

/** Show that Run is what comes after the choice of an example; the next press of Run removes the mark. */
export function cueRun() {
  const run = document.querySelector("#run");
  run.dataset.cued = "";
  run.focus({ preventScroll: true });
  run.addEventListener("click", () => delete run.dataset.cued, { once: true });
}

/** Start a run with the settings `address`, the query of a link, unless one is running; `trigger` is a component's. */
export function startRun(trigger, address) {
  if (!document.querySelector("#run:disabled")) trigger("submit", { address });
}

let held = null; // the settings in the widgets; null if the widgets have not changed yet

/** Keep the values of the widgets `names` for a reload, which Gradio also causes after the connection was lost. */
export function keepForReload(names, values) {
  held = settingsOf(names, values);
  rememberInTab(KEPT_KEY, { asked: String(askedSettings(names)), settings: String(heldSettings()) });
}

/** The settings in the widgets, as parameters of an address. */
export function heldSettings() {
  return new URLSearchParams(held ? Object.entries(held) : location.search);
}

/** The values of the settings in the widgets; none if the widgets have not changed yet. */
export function heldValues() {
  return held ?? {};
}

/** The kept values of the widgets `names`, as the query of an address; "" if the address now asks for other ones. */
export function keptSettings(names) {
  const kept = recallInTab(KEPT_KEY);
  return kept?.asked === String(askedSettings(names)) ? kept.settings : "";
}

function askedSettings(names) {
  return new URLSearchParams([...new URLSearchParams(location.search)].filter(([name]) => names.includes(name)));
}

/** The settings in the widgets with these names; an empty number box sets nothing. */
export function settingsOf(names, values) {
  const held = names.map((name, index) => [name, values[index]]).filter(([, value]) => value !== null);
  const { auto, ...settings } = Object.fromEntries(held);
  return auto ? { ...settings, k: "auto" } : settings;
}

/** Make a press elsewhere or Escape close the settings panel; with a list open, Escape only closes the list. */
export function mountSettings() {
  document.querySelector("#auto").title = ABOUT_AUTO;
  const opener = () => document.querySelector(`${PANEL} > button`);
  const isOpen = () => Boolean(opener()?.classList.contains("open"));
  document.addEventListener("pointerdown", ({ target }) => {
    const isInside = target.closest(PANEL) || target.closest("[role=listbox]");
    if (isOpen() && !isInside) opener().click();
  });
  document.addEventListener("keydown", ({ key, target }) => {
    if (key !== "Escape" || !isOpen() || !target.closest(PANEL) || target.matches("[role=combobox][aria-expanded=true]")) return;
    opener().click();
    opener().focus();
  }, true); // before Gradio closes the list
}
