// Events as NDJSON: one JSON object a line. Knows neither what they mean nor where they are shown.

/** Events of a whole text. */
export function parseEvents(text) {
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** Reads a component's value, which only grows while a job goes on: each event is handed out once. */
export class GrowingLines {
  constructor() {
    this.value = "";
    this.length = 0; // of the lines that have been read
    this.stale = false;
  }

  /** A job begins: any value but the one at hand, which is of the job before, is read from its first line. */
  renew() {
    this.stale = true;
  }

  /**
   * `{ anew, events }`: the events of those lines of `value` that are complete and have not been read, and
   * whether it is the beginning of another job: it is, unless it goes on from the value before.
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
