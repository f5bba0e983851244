// Helpers for all parts of the page: elements, forms and browser storage. Text is always written as a text node.

/** The maximum width at which the style sheets use the layout for phones. */
export const PHONE_PX = 900;

/** Return a new element with a class and with children, which may be texts. */
export function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** Return a new button that calls `act` when it is pressed. */
export function button(className, words, act) {
  const made = element("button", className, words);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

/** Return a new progress bar; its `value` goes from 0 to 1. */
export function progressBar(label) {
  const bar = element("progress", "sd-progress-bar");
  bar.value = 0;
  bar.setAttribute("aria-label", label);
  return bar;
}

/** Call `act` when the form is submitted; the browser itself sends nothing. */
export function onSubmit(form, act) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act();
  });
}

/** Return the elements under `root` that have the attribute `data-role`, by its value. */
export function rolesOf(root) {
  return Object.fromEntries([...root.querySelectorAll("[data-role]")].map((node) => [node.dataset.role, node]));
}

/** Replace all children of `root`. If the focus was inside `root`, it moves to the first new child. */
export function replaceParts(root, first, ...others) {
  const hadFocus = root.contains(document.activeElement);
  root.replaceChildren(first, ...others);
  if (!hadFocus) return;
  first.tabIndex = -1;
  first.focus({ preventScroll: true });
}

/** Scroll to `section`, unless all of it is in the window. */
export function comeIntoView(section) {
  const { top, bottom } = section.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight) section.scrollIntoView({ block: "start" });
}

/** Set the text of `node` if it differs: setting it again would cost a layout, and screen readers would repeat it. */
export function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

// Browsers may deny storage, for example in private windows. The page works without it.

export function recall(key) {
  return tried(() => localStorage.getItem(key));
}

export function remember(key, value) {
  tried(() => localStorage.setItem(key, value));
}

export function forget(key) {
  tried(() => localStorage.removeItem(key));
}

/** The value that this browser tab stored, or null. */
export function recallInTab(key) {
  return tried(() => JSON.parse(sessionStorage.getItem(key)));
}

export function rememberInTab(key, value) {
  tried(() => sessionStorage.setItem(key, JSON.stringify(value)));
}

export function forgetInTab(key) {
  tried(() => sessionStorage.removeItem(key));
}

function tried(act) {
  try {
    return act();
  } catch {
    return null;
  }
}

/**
 * Call `act` each time that a button of Gradio becomes disabled; returns the observer. Gradio also disables a disabled
 * button again, when the next job may have been requested already.
 */
export function onDisabled(button, act) {
  const observer = new MutationObserver((changes) => {
    if (button.disabled && changes.some(({ oldValue }) => oldValue === null)) act();
  });
  observer.observe(button, { attributeFilter: ["disabled"], attributeOldValue: true });
  return observer;
}
