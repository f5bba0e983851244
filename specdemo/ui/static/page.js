// The page around the stage: its tabs and lessons in the address, and the settings menu.

import { button } from "./dom.js";

const BUTTON_ID = /^tab-(\w+)-button$/;
const IN_ADDRESS = /^#tab=(\w+)$/;
const PANEL = "#more";
const LINE = "#summary"; // Gradio replaces its content with every change

/** A button that opens a tab of the page; the words alone on a page without tabs. */
export function tabOpener(name, words) {
  return buttonOf(name) ? button("sd-opener", words, () => openTab(name)) : words;
}

export function openTab(name) {
  buttonOf(name)?.click();
}

/** Open a question of the quiz, from 0. */
export function openQuestion(index) {
  openTab("learn");
  noteLesson("quiz", index + 1);
  document.dispatchEvent(new CustomEvent("sd-question", { detail: { index } }));
}

/** Put a lesson, and a question of the quiz, into the address, so that it is always a link to what is shown. */
export function noteLesson(lesson, question) {
  const url = new URL(location.href);
  url.searchParams.set("lesson", lesson);
  if (question) url.searchParams.set("question", question);
  else url.searchParams.delete("question");
  history.replaceState(history.state, "", url);
}

/** Open the tab that the address names, now and after Back or Forward; put each opened tab into the address. */
export function keepTabInAddress() {
  const first = new URLSearchParams(location.search).has("lesson") ? "learn" : currentTab(); // if the address names none
  const follow = () => {
    const name = tabIn(location.hash) ?? first;
    if (name !== currentTab()) openTab(name);
  };
  follow();
  addEventListener("popstate", follow);
  addEventListener("click", ({ target }) => {
    const name = target.closest?.("[role=tab]")?.id.match(BUTTON_ID)?.[1];
    if (name && name !== (tabIn(location.hash) ?? first)) history.pushState(null, "", addressOf(name));
  });
}

/** The tab in an address's fragment, or null. */
export function tabIn(hash) {
  return hash.match(IN_ADDRESS)?.[1] ?? null;
}

// A lesson in the address opens its own tab.
function addressOf(name) {
  const url = new URL(location.href);
  if (name !== "learn") for (const part of ["lesson", "question"]) url.searchParams.delete(part);
  url.hash = `tab=${name}`;
  return url;
}

/** The open tab; undefined on a page without tabs. */
export function currentTab() {
  return document.querySelector("[role=tab][aria-selected=true]")?.id.match(BUTTON_ID)?.[1];
}

function buttonOf(name) {
  return document.getElementById(`tab-${name}-button`);
}

/** Show the hints of the chosen settings, and return the line that sums the settings up. */
export function tellSettings(labels, values) {
  for (const words of document.querySelectorAll("[data-choice]")) words.hidden = !values.includes(words.dataset.choice);
  return settingsLine(labels, values);
}

export function settingsLine(labels, [drafter, rule, temperature, tokens]) {
  return `${labels[drafter] ?? drafter} · ${rule} · T ${temperature} · ${tokens} tokens`;
}

/** Open the settings panel from its line; close it by a press elsewhere or Escape. */
export function mountSettings() {
  const line = document.querySelector(LINE);
  const opener = () => document.querySelector(`${PANEL} > button`);
  const isOpen = () => Boolean(opener()?.classList.contains("open"));
  line.addEventListener("click", () => opener()?.click());
  document.addEventListener("pointerdown", ({ target }) => {
    const isInside = target.closest(PANEL) || line.contains(target) || target.closest("[role=listbox]");
    if (isOpen() && !isInside) opener().click();
  });
  document.addEventListener("keydown", ({ key, target }) => {
    if (key !== "Escape" || !isOpen() || !target.closest(PANEL)) return;
    opener().click();
    opener().focus();
  });
}
