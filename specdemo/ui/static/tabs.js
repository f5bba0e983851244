// Ways from one tab of the page to another. A page that carries its run with it has no tabs.

import { element } from "./dom.js";

/** A button with these words that opens the page's tab of that name; the words alone where there is none. */
export function tabOpener(name, words) {
  const tab = document.getElementById(`tab-${name}-button`);
  if (!tab) return words;
  const button = element("button", "sd-opener", words);
  button.type = "button";
  button.addEventListener("click", () => tab.click());
  return button;
}
