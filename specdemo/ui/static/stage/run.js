// One run as the page holds it: what has arrived of it, and how it is looked at. The stage shows one of them at a time.

import { keepRun } from "./recordings.js";
import { Pieces } from "./tokens.js";
import { Trace } from "./trace.js";

export class ShownRun {
  /**
   * `recording` is the name of a built-in recording, or null; `isOwn` is true for a run that this visitor made with the
   * page's models, and `isKept` if this browser has stored it; `live` is true if its events come from the component;
   * `topic` are the parts of the stage that it needs (see `Topic`); `isOfLesson` is true if it does not take the place of
   * the visitor's run.
   */
  constructor({ recording = null, isOwn = false, isKept = false, live = false, topic = {}, isOfLesson = false } = {}) {
    Object.assign(this, { recording, isOwn, isKept, live, topic, isOfLesson });
    this.trace = new Trace();
    this.pieces = new Pieces();
    this.progress = null; // the latest progress event before the first token
    this.error = null; // the sentence of a failed run
    this.isOver = false; // true if no more events of it are taken
    this.note = null; // what the line with its source begins with
    this.isLinked = false; // true if it stands for a run whose settings a link has set
    this.isSlow = false; // true if its first rounds are played slowly, see `slowedAt`
    this.player = null; // its clock; the stage creates it
    this.wasPlaying = true; // of a run that is not shown
    this.round = null; // the index of the round that is open, of a run that is not shown
  }

  /** True if it can be shown: it has a token or has failed. */
  get hasBegun() {
    return this.trace.arrived.length > 0 || this.trace.end !== null || this.error !== null;
  }

  /** True if more events may arrive. */
  get isArriving() {
    return this.live && !this.isOver && !this.trace.closed;
  }

  take(event) {
    if (event.over) this.isOver = true;
    if (event.type === "progress") this.progress = event;
    else if (event.type === "error") {
      this.error = event.message;
      this.trace.closed = true;
    } else {
      this.trace.take(event);
      if (event.pieces) this.pieces.add(event.pieces, event.specials);
      if (event.type === "start" && this.live) this.isOwn = !event.run.watched;
      if (event.type === "end" && this.live && this.isOwn && !this.isOfLesson) keepRun(this.trace.events);
    }
  }
}
