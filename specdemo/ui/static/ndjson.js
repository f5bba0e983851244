// Events as NDJSON, one JSON object per line: every tab's component has them as its value.

/** Parse the events of a whole text. */
export function parseEvents(text) {
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** Reader of a component's value, which only grows during a job: it returns each event once. */
export class GrowingLines {
  constructor() {
    this.value = "";
    this.length = 0; // of the lines read so far
    this.stale = false;
  }

  /** A job begins: read the next other value from its first line. */
  renew() {
    this.stale = true;
  }

  /** Return `{ anew, events }`: the events of new complete lines, and whether `value` belongs to another job. */
  read(value) {
    if (value === this.value) return { anew: false, events: [] };
    const anew = this.stale || !this.value || !value.startsWith(this.value);
    const from = anew ? 0 : this.length;
    this.stale = false;
    this.value = value;
    this.length = value.lastIndexOf("\n") + 1;
    return { anew, events: parseEvents(value.slice(from, this.length)) };
  }
}
