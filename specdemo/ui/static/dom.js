// Helpers for every part of the page: elements, forms, and browser storage. Text always becomes a text node.

/** Up to this width the style sheets lay the page out for a phone. */
export const PHONE_PX = 900;

/** An element with a class and, if given, children or text. */
export function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** A button that calls `act` when it is pressed. */
export function button(className, words, act) {
  const made = element("button", className, words);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

/** An empty progress bar; its `value` goes from 0 to 1. */
export function progressBar(label) {
  const bar = element("progress", "sd-progress-bar");
  bar.value = 0;
  bar.setAttribute("aria-label", label);
  return bar;
}

/** Call `act` when the form is submitted, and send nothing. */
export function onSubmit(form, act) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act();
  });
}

/** The elements with `data-role`, by role. */
export function rolesOf(root) {
  return Object.fromEntries([...root.querySelectorAll("[data-role]")].map((node) => [node.dataset.role, node]));
}

/** Replace all children of `root`; a focus inside `root` moves to the first new one. */
export function replaceParts(root, first, ...others) {
  const hadFocus = root.contains(document.activeElement);
  root.replaceChildren(first, ...others);
  if (!hadFocus) return;
  first.tabIndex = -1;
  first.focus({ preventScroll: true });
}

/** Set the text of `node`; the same text again would cost a layout and be read out twice. */
export function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

// Storage may be denied, as in private windows; the page works without it.

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
