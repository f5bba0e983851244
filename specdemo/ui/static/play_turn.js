// A turn as a job of the server: sent and stopped through Gradio's own buttons, its events handed on.

import { GrowingLines } from "./ndjson.js";

export class TurnJob {
  /** `onEvent(event)` is called with each event of a turn, `onEnd()` once the server is free again, however it ended. */
  constructor({ onEvent, onEnd }) {
    this.onEvent = onEvent;
    this.onEnd = onEnd;
    this.lines = new GrowingLines();
    this.busy = false;
  }

  send() {
    this.busy = true;
    this.lines.renew();
    const button = gradioButton("play-send");
    let started = false;
    const watcher = new MutationObserver(() => {
      if (button.disabled) started = true;
      else if (started) {
        watcher.disconnect();
        this.busy = false;
        this.onEnd();
      }
    });
    watcher.observe(button, { attributes: true });
    button.click();
  }

  stop() {
    gradioButton("play-stop").click();
  }

  /** Take in what is new in the live value; what comes behind the end of a turn counts for nothing. */
  feed(value) {
    for (const event of this.lines.read(value).events) if (this.busy) this.onEvent(event);
  }
}

function gradioButton(id) {
  return document.getElementById(id);
}
