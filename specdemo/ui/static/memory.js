// What a visitor chose, kept from visit to visit. Storage may be denied (private windows); the page works without it.

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
