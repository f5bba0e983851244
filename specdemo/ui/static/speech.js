// What those who listen hear of a run: the latest sentence, at most one in two seconds.

const GAP_MS = 2000;

export class Speaker {
  /** `node` is a polite live region; `clock` stands in for the browser's in tests. */
  constructor(node, clock = browserClock()) {
    this.node = node;
    this.clock = clock;
    this.last = -Infinity;
    this.next = null;
    this.timer = null;
  }

  /** Say it as soon as the gap allows; of several that wait the latest is said. */
  say(words) {
    this.next = words;
    const wait = this.last + GAP_MS - this.clock.now();
    if (wait <= 0) this.sayNow(words);
    else this.timer ??= this.clock.after(wait, () => this.sayNow(this.next));
  }

  /** Say what was asked for, or ends a run; what waits is not said any more. */
  sayNow(words) {
    this.cancel();
    this.last = this.clock.now();
    if (this.node.textContent !== words) this.node.textContent = words;
  }

  /** Nothing to say: another run begins. */
  silence() {
    this.cancel();
    this.node.textContent = "";
  }

  cancel() {
    if (this.timer !== null) this.clock.cancel(this.timer);
    this.timer = null;
    this.next = null;
  }
}

function browserClock() {
  return {
    now: () => performance.now(),
    after: (delay, callback) => setTimeout(callback, delay),
    cancel: (timer) => clearTimeout(timer),
  };
}
