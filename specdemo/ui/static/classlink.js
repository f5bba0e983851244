// The class link: one address with the lesson that is read, the prompt and the settings, for a whole class to open.

import { classLink } from "./share.js";
import { stageOfPage } from "./stage.js";

/** Copy it; `names` and `values` are those of the page's widgets. */
export async function copyClassLink(names, values) {
  const lesson = document.querySelector(".sd-learn").dataset.at;
  const question = lesson === "quiz" ? document.querySelector(".sd-quiz").dataset.at : null;
  const recording = question ? null : stageOfPage()?.recording;
  const link = classLink(location.href, { lesson, question }, settingsOf(names, values), recording);
  const told = document.querySelector("[data-role=class-told]");
  try {
    await navigator.clipboard.writeText(link);
    told.textContent = "Link copied.";
  } catch {
    history.replaceState(history.state, "", link);
    told.textContent = "Copy it from the address bar.";
  }
}

/** The settings of a run that widgets of these names hold; an emptied number box holds none. */
export function settingsOf(names, values) {
  const held = names.map((name, index) => [name, values[index]]).filter(([, value]) => value !== null);
  const { auto, ...settings } = Object.fromEntries(held);
  return auto ? { ...settings, k: "auto" } : settings;
}
