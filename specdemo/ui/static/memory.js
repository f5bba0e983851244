// What a visitor chose, kept from visit to visit, or in a tab as long as it is open. Storage may be denied (private
// windows); the page works without it.

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
