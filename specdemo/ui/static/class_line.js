// The line between a student's page and the class: joins, hears what is shown, answers. Knows nothing of what it means.

import { recallInTab, rememberInTab } from "./memory.js";

const KEY = "specdemo-class";
const SILENT_MS = 6000; // a stream that does not even begin within that is kept back by a proxy
const RETRY_MS = 2000;
const POLL_GAP_MS = 300;
const OVER = 404;

/** What the server refuses, in its own sentence, with the reply's `status`. */
export class ClassRefusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export class ClassLine {
  /** `onMessage` gets every message once, in order; `onState` whether the line is open. */
  constructor(address, { onMessage, onState }) {
    this.address = address.href;
    this.onMessage = onMessage;
    this.onState = onState;
    this.last = 0;
    this.isOver = false;
    this.hear = () => this.listen();
  }

  /** Join and listen, however long the network takes; rejects with a `ClassRefusal` where there is no such class. */
  async open() {
    try {
      await this.join();
    } catch (error) {
      if (error.status === OVER) throw error;
      return this.again();
    }
    this.hear();
  }

  async answer(answer) {
    await this.post("answer", { student: this.token, ...answer });
  }

  /** Gives the draft's number. */
  async draft(draft) {
    const { number } = await this.post("draft", { student: this.token, ...draft });
    return number;
  }

  /** What became of one's own draft; null where there is none. */
  async ownVerdict() {
    return told(await fetch(`${this.address}/own?student=${encodeURIComponent(this.token)}`));
  }

  async join() {
    const { student, ...known } = await this.post("join", { student: recallInTab(this.key) });
    this.token = student;
    rememberInTab(this.key, student);
    this.onMessage({ type: "given", ...known });
  }

  get key() {
    return `${KEY} ${this.address}`;
  }

  async post(path, content) {
    return told(await fetch(`${this.address}/${path}`, { method: "POST", body: JSON.stringify(content) }));
  }

  at(path) {
    return `${this.address}/${path}?student=${encodeURIComponent(this.token)}&after=${this.last}`;
  }

  listen() {
    const source = new EventSource(this.at("events"));
    const close = () => {
      clearTimeout(silent);
      source.close();
    };
    // Some proxies hand a stream on only when it has ended: then news is asked for, from now on.
    const silent = setTimeout(() => {
      close();
      this.hear = () => this.poll();
      this.hear();
    }, SILENT_MS);
    source.onmessage = ({ data }) => {
      clearTimeout(silent);
      this.onState(true);
      this.take(JSON.parse(data));
      if (this.isOver) close();
    };
    source.onerror = () => {
      close();
      if (!this.isOver) this.again();
    };
  }

  async poll() {
    try {
      const response = await fetch(this.at("news"));
      if (!response.ok) await told(response);
      const lines = (await response.text()).split("\n").filter(Boolean);
      this.onState(true);
      for (const line of lines) this.take(JSON.parse(line));
      if (!this.isOver) setTimeout(() => this.poll(), POLL_GAP_MS);
    } catch {
      this.again();
    }
  }

  // Join anew first: the server may have forgotten who this is, and says whether the class is over.
  again() {
    this.onState(false);
    const attempt = async () => {
      try {
        await this.join();
        this.hear();
      } catch (error) {
        if (error.status === OVER) this.take({ type: "end" });
        else this.again();
      }
    };
    setTimeout(attempt, RETRY_MS * (0.5 + Math.random())); // not all of a class at once
  }

  take(message) {
    if (message.type === "here" || message.id <= this.last) return;
    this.last = message.id ?? this.last;
    this.isOver = message.type === "end";
    this.onMessage(message);
  }
}

async function told(response) {
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  throw new ClassRefusal(content.error ?? "The class could not be reached; reload the page.", response.status);
}
