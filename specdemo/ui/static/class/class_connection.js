// The connection between a student's page and the class: joins, receives messages, posts answers and drafts.

import { recallInTab, rememberInTab } from "../common/dom.js";

const KEY = "specdemo-class";
const SILENT_MS = 6000; // if a stream has not begun after this time, a proxy holds it back
const LOST_MS = 8000; // the server sends something every two seconds, so after this time the connection is lost
const RETRY_MS = 2000;
const POLL_GAP_MS = 300;
const OVER = 404;
const NO_CONNECTION = "No connection. This page sends it when the connection is back.";

export class ClassConnection {
  /** `onMessage` gets every message once and in order; `onState` gets true or false for a connection. */
  constructor(address, { onMessage, onState }) {
    this.address = address.href;
    this.onMessage = onMessage;
    this.onState = onState;
    this.last = 0;
    this.isOver = false;
    this.isPolling = false;
    this.sending = {}; // the latest content of each path that is not accepted yet
  }

  /** Join the class and receive its messages, with retries. Rejects if there is no such class. */
  async open() {
    try {
      await this.join();
      this.receive();
    } catch (error) {
      if (error.status === OVER) throw error;
      this.retry();
    }
  }

  /**
   * Post an answer or a draft; `path` is "answer" or "draft". Without a connection, call `onWait` with a sentence and try again.
   * Resolves to true if the server has accepted it, and to false if later content takes its place; rejects with the server's
   * sentence.
   */
  async send(path, content, onWait) {
    this.sending[path] = content;
    while (!this.isOver && this.sending[path] === content) {
      try {
        await this.post(path, { student: this.token, ...content });
        return this.sending[path] === content;
      } catch (error) {
        if (error.status) throw error;
        onWait(NO_CONNECTION);
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    }
    return false;
  }

  /** Resolves to the verdict on the student's own draft, or to null if there is none. */
  async ownVerdict() {
    return jsonOf(await fetch(`${this.address}/own?student=${encodeURIComponent(this.token)}`));
  }

  async join() {
    const key = `${KEY} ${this.address}`;
    const { student, ...known } = await this.post("join", { student: recallInTab(key) });
    this.token = student;
    rememberInTab(key, student);
    this.onMessage({ type: "given", ...known });
  }

  async post(path, content) {
    return jsonOf(await fetch(`${this.address}/${path}`, { method: "POST", body: JSON.stringify(content), signal: AbortSignal.timeout(LOST_MS) }));
  }

  at(path) {
    return `${this.address}/${path}?student=${encodeURIComponent(this.token)}&after=${this.last}`;
  }

  receive() {
    if (this.isPolling) this.poll();
    else this.listen();
  }

  listen() {
    const source = new EventSource(this.at("events"));
    let watch;
    const close = () => {
      clearTimeout(watch);
      source.close();
    };
    const lose = () => {
      close();
      if (!this.isOver) this.retry();
    };
    // Some proxies deliver a stream only when it has ended. In that case the page polls from now on.
    watch = setTimeout(() => {
      close();
      this.isPolling = true;
      this.poll();
    }, SILENT_MS);
    source.onmessage = ({ data }) => {
      clearTimeout(watch);
      watch = setTimeout(lose, LOST_MS);
      this.onState(true);
      this.take(JSON.parse(data));
      if (this.isOver) close();
    };
    source.onerror = lose;
  }

  async poll() {
    try {
      const response = await fetch(this.at("news"));
      if (!response.ok) throw new Error();
      const lines = (await response.text()).split("\n").filter(Boolean);
      this.onState(true);
      for (const line of lines) this.take(JSON.parse(line));
      if (!this.isOver) setTimeout(() => this.poll(), POLL_GAP_MS);
    } catch {
      this.retry();
    }
  }

  // Joins again before receiving: the server may have forgotten this student, and it replies if the class has ended.
  retry() {
    this.onState(false);
    const attempt = async () => {
      try {
        await this.join();
        this.receive();
      } catch (error) {
        if (error.status === OVER) this.take({ type: "end" });
        else this.retry();
      }
    };
    setTimeout(attempt, RETRY_MS * (0.5 + Math.random())); // random, so that not all students of a class retry at once
  }

  take(message) {
    if (message.type === "here" || message.id <= this.last) return;
    this.last = message.id ?? this.last;
    this.isOver = message.type === "end";
    this.onMessage(message);
  }
}

async function jsonOf(response) {
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  throw Object.assign(new Error(content.error ?? "The class could not be reached; reload the page."), { status: response.status });
}
