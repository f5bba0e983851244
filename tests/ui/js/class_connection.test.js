// A student's connection, with an event source and posts made up by the test.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

globalThis.sessionStorage = { getItem: () => null, setItem: () => {} };
const { ClassConnection } = await import("../../../specdemo/ui/static/class/class_connection.js");

class Source {
  static opened = [];

  constructor() {
    Source.opened.push(this);
  }

  close() {
    this.isClosed = true;
  }
}

test("a connection that becomes silent is lost within ten seconds, and opened again", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  globalThis.EventSource = Source;
  globalThis.fetch = async () => ({ ok: true, json: async () => ({ student: "s" }) });
  const states = [];
  const line = new ClassConnection(new URL("http://host/specdemo-class/BCDFG"), { onMessage: () => {}, onState: (state) => states.push(state) });
  await line.open();
  const [first] = Source.opened;
  for (let second = 0; second < 30; second += 2) {
    mock.timers.tick(2000);
    first.onmessage({ data: '{"type":"here"}' });
  }
  assert.ok(states.every(Boolean) && !first.isClosed, "while the server sends");
  mock.timers.tick(10_000);
  assert.equal(states.at(-1), false);
  assert.ok(first.isClosed);
  mock.timers.tick(3000);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(Source.opened.length, 2);
  mock.timers.reset();
});
