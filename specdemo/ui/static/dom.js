// Helpers for every part of the page: elements, forms, and what the browser stores. Text always becomes a text node.

/** Up to this width a page is laid out for a phone, as in the style sheets. */
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

/** Call `act` when the form is submitted, and send nothing. */
export function onSubmit(form, act) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act();
  });
}

/** What carries `data-role`, by role. */
export function rolesOf(root) {
  return Object.fromEntries([...root.querySelectorAll("[data-role]")].map((node) => [node.dataset.role, node]));
}

/** Put these in the place of all that `root` holds; whoever had the focus in there finds it on the first of them. */
export function replaceParts(root, first, ...others) {
  const hadFocus = root.contains(document.activeElement);
  root.replaceChildren(first, ...others);
  if (!hadFocus) return;
  first.tabIndex = -1;
  first.focus({ preventScroll: true });
}

/** Have `node` say these words; where it says them already nothing is laid out anew, or read out again. */
export function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

export function recall(key) {
  return tried(() => localStorage.getItem(key));
}

export function remember(key, value) {
  tried(() => localStorage.setItem(key, value));
}

export function forget(key) {
  tried(() => localStorage.removeItem(key));
}

/** What this tab has kept, as it was given; null where there is nothing. */
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

/** An empty bar that says to listeners what `label` names; its `value` goes from 0 to 1. */
export function progressBar(label) {
  const bar = element("progress", "sd-progress-bar");
  bar.value = 0;
  bar.setAttribute("aria-label", label);
  return bar;
}
