// The settings that are put away: a line that says what they hold, and when their panel closes.

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
