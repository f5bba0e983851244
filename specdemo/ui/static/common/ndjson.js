// Readers of events as NDJSON, one JSON object per line. A tab's component has the events of a job as its value.

/** Parse the events of a whole text. */
export function parseEvents(text) {
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** A reader that returns each event once from a component's value, which only grows during a job. */
export class GrowingLines {
  constructor() {
    this.value = "";
    this.length = 0; // the length of the complete lines read so far
    this.stale = false;
  }

  /** Call when a job begins: the next value that differs is read from its first line. */
  renew() {
    this.stale = true;
  }

  /**
   * Return `{ anew, events }`: the events of the new complete lines; `anew` is true if `value` is that of another
   * job.
   */
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
