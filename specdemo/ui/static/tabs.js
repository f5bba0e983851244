// The tabs of the page: ways from one to another, and their place in the address, so that Back leads to the tab
// before. A page that carries its run with it has no tabs.

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
