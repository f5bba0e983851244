// How far a job is, as a bar: the same one wherever something is waited for.

import { element } from "./dom.js";

/** An empty bar that says to listeners what `label` names; its `value` goes from 0 to 1. */
export function progressBar(label) {
  const bar = element("progress", "sd-progress-bar");
  bar.value = 0;
  bar.setAttribute("aria-label", label);
  return bar;
}
