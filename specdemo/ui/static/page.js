// The page around the stage: its tabs, their place in the address, and the settings menu.

import { element } from "./dom.js";

const BUTTON_ID = /^tab-(\w+)-button$/;
const IN_ADDRESS = /^#tab=(\w+)$/;

/** A button with these words that opens the page's tab of that name; the words alone where there is none. */
export function tabOpener(name, words) {
  const tab = buttonOf(name);
  if (!tab) return words;
  const button = element("button", "sd-opener", words);
  button.type = "button";
  button.addEventListener("click", () => tab.click());
  return button;
}

/** Open the page's tab of that name. */
export function openTab(name) {
  buttonOf(name)?.click();
}

/** Open a question of the quiz, from 0: the lessons and the quiz hear of it, or find it in the address. */
export function openQuestion(index) {
  openTab("learn");
  const url = new URL(location.href);
  url.searchParams.set("lesson", "quiz");
  url.searchParams.set("question", index + 1);
  history.replaceState(history.state, "", url);
  document.dispatchEvent(new CustomEvent("sd-question", { detail: { index } }));
}

/** Open the tab that the address names, now and whenever the visitor goes back or on; note each that is opened. */
export function keepTabInAddress() {
  const first = new URLSearchParams(location.search).has("lesson") ? "learn" : tabAtHand(); // where the address names none
  const follow = () => {
    const name = tabIn(location.hash) ?? first;
    if (name !== tabAtHand()) buttonOf(name)?.click();
  };
  follow();
  addEventListener("popstate", follow);
  addEventListener("click", ({ target }) => {
    const name = target.closest?.("[role=tab]")?.id.match(BUTTON_ID)?.[1];
    if (name && name !== (tabIn(location.hash) ?? first)) history.pushState(null, "", addressOf(name));
  });
}

/** The tab an address's fragment names; null where it names none. */
export function tabIn(hash) {
  return hash.match(IN_ADDRESS)?.[1] ?? null;
}

// A lesson in the address opens its own tab.
function addressOf(name) {
  const url = new URL(location.href);
  if (name !== "learn") for (const asked of ["lesson", "question"]) url.searchParams.delete(asked);
  url.hash = `tab=${name}`;
  return url;
}

/** The tab that is open; undefined where there are none. */
export function tabAtHand() {
  return document.querySelector("[role=tab][aria-selected=true]")?.id.match(BUTTON_ID)?.[1];
}

function buttonOf(name) {
  return document.getElementById(`tab-${name}-button`);
}

const PANEL = "#more";
const LINE = "#summary"; // what is in it is replaced with every change

/** Show what the chosen drafter and rule do, and give the line for all of it. */
export function tellSettings(labels, values) {
  for (const words of document.querySelectorAll("[data-choice]")) words.hidden = !values.includes(words.dataset.choice);
  return settingsLine(labels, values);
}

/** One line: drafter, rule, temperature and length. `labels` are what the menu calls the drafters. */
export function settingsLine(labels, [drafter, rule, temperature, tokens]) {
  return `${labels[drafter] ?? drafter} · ${rule} · T ${temperature} · ${tokens} tokens`;
}

/** Have the line open the panel, and a press elsewhere or Escape close it. */
export function mountSettings() {
  const line = document.querySelector(LINE);
  const button = () => document.querySelector(`${PANEL} > button`);
  const isOpen = () => Boolean(button()?.classList.contains("open"));
  line.addEventListener("click", () => button()?.click());
  document.addEventListener("pointerdown", ({ target }) => {
    const inside = target.closest(PANEL) || line.contains(target) || target.closest("[role=listbox]");
    if (isOpen() && !inside) button().click();
  });
  document.addEventListener("keydown", ({ key, target }) => {
    if (key !== "Escape" || !isOpen() || !target.closest(PANEL)) return;
    button().click();
    button().focus();
  });
}
