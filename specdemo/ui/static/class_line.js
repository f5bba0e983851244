// The line between a student's page and the class: joins, hears what is shown, answers. Knows nothing of what it means.

const TOKEN_KEY = "specdemo-class";
const SILENT_MS = 6000; // a stream that says nothing for so long at its start is kept back by a proxy
const RETRY_MS = 2000;

/** What the server refuses, in its own sentence. */
export class ClassRefusal extends Error {}

export class ClassLine {
  /** `onMessage` gets every message once, in order; `onState` whether the line is open. */
  constructor(address, { onMessage, onState }) {
    this.address = address.href;
    this.onMessage = onMessage;
    this.onState = onState;
    this.last = 0;
    this.isOver = false;
  }

  /** Join and listen; rejects with a `ClassRefusal` where there is no such class. */
  async open() {
    await this.join();
    this.listen();
  }

  async answer(answer) {
    await this.post("answer", { student: this.token, ...answer });
  }

  /** Gives the draft's number. */
  async draft(draft) {
    const { number } = await this.post("draft", { student: this.token, ...draft });
    return number;
  }

  async join() {
    const { student, ...known } = await this.post("join", { student: recallToken(this.address) });
    this.token = student;
    keepToken(this.address, student);
    this.onMessage({ type: "given", ...known });
  }

  async post(path, content) {
    const response = await fetch(`${this.address}/${path}`, { method: "POST", body: JSON.stringify(content) });
    return told(response);
  }

  at(path) {
    return `${this.address}/${path}?student=${encodeURIComponent(this.token)}&after=${this.last}`;
  }

  listen() {
    const source = new EventSource(this.at("events"));
    // Some proxies hand a stream on only when it has ended: then news is asked for.
    const silent = setTimeout(() => {
      source.close();
      this.poll();
    }, SILENT_MS);
    source.onopen = () => this.onState(true);
    source.onmessage = ({ data }) => {
      clearTimeout(silent);
      this.take(JSON.parse(data));
      if (this.isOver) source.close();
    };
    source.onerror = () => {
      clearTimeout(silent);
      source.close();
      if (this.isOver) return;
      this.onState(false);
      this.again(() => this.listen());
    };
  }

  async poll() {
    try {
      const response = await fetch(this.at("news"));
      if (!response.ok) await told(response);
      const lines = (await response.text()).split("\n").filter(Boolean);
      this.onState(true);
      for (const line of lines) this.take(JSON.parse(line));
      if (!this.isOver) setTimeout(() => this.poll());
    } catch {
      this.onState(false);
      this.again(() => this.poll());
    }
  }

  // Join anew first: the server may have forgotten who this is, and says whether the class is over.
  again(listen) {
    const attempt = async () => {
      try {
        await this.join();
        listen();
      } catch (error) {
        if (error instanceof ClassRefusal && error.status === 404) this.take({ type: "end" });
        else this.again(listen);
      }
    };
    setTimeout(attempt, RETRY_MS * (0.5 + Math.random())); // not all of a class at once
  }

  take(message) {
    if (message.id !== undefined && message.id <= this.last) return;
    this.last = message.id ?? this.last;
    this.isOver = message.type === "end";
    this.onMessage(message);
  }
}

async function told(response) {
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  const refusal = new ClassRefusal(content.error ?? "The class could not be reached; reload the page.");
  refusal.status = response.status;
  throw refusal;
}

// Of this tab only: two tabs are two students.
function recallToken(address) {
  try {
    return sessionStorage.getItem(`${TOKEN_KEY} ${address}`);
  } catch {
    return null;
  }
}

function keepToken(address, token) {
  try {
    sessionStorage.setItem(`${TOKEN_KEY} ${address}`, token);
  } catch {
    // Whoever reloads is another student then.
  }
}
