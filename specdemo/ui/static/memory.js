// What a visitor chose, kept from visit to visit, or in a tab as long as that is open. Storage may be denied (private windows); the page works without it.

export function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // See recall.
  }
}

export function forget(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    // See recall.
  }
}

/** What this tab has kept, as it was given; null where there is nothing. */
export function recallInTab(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key));
  } catch {
    return null;
  }
}

export function rememberInTab(key, value) {
  try {
    sessionStorage.setItem(key, JSON.stringify(value));
  } catch {
    // See recall.
  }
}

export function forgetInTab(key) {
  try {
    sessionStorage.removeItem(key);
  } catch {
    // See recall.
  }
}
