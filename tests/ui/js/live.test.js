import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { chooseThreads } from "../../../specdemo/ui/static/live/decoding.js";
import { memoryFor } from "../../../specdemo/ui/static/live/passes.js";
import { loadPair } from "../../../specdemo/ui/static/live/weights.js";

const BASE = "http://host/models/";
const bytesOf = (text) => new TextEncoder().encode(text);
const hashOf = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** A server with three files, a browser's storage, and the plan; `server.answer` may change what is sent. */
function world(t, { refuses = false } = {}) {
  const files = { "tokens.json": bytesOf('{"pieces":[]}'), "weights-00.bin": bytesOf("0123"), "weights-01.bin": bytesOf("4567") };
  const server = { asked: [], answer: (name) => new Response(files[name]) };
  const held = new Map();
  const store = {
    match: async (url) => held.get(url)?.clone(),
    put: async (url, response) => {
      if (refuses) throw new Error("QuotaExceededError");
      held.set(url, response);
    },
    keys: async () => [...held.keys()].map((url) => ({ url })),
    delete: async (url) => held.delete(url.url ?? url),
  };
  globalThis.caches = { open: async () => store };
  globalThis.fetch = async (url) => {
    const name = new URL(url).pathname.split("/").at(-1);
    server.asked.push(name);
    return server.answer(name);
  };
  t.after(() => [delete globalThis.caches, delete globalThis.fetch]);
  const entry = (file) => ({ file, bytes: files[file].length, sha256: hashOf(files[file]) });
  const pieces = ["weights-00.bin", "weights-01.bin"].map((file, index) => ({ ...entry(file), parts: [[4 * index, "raw", 4, 1]] }));
  const plan = { tokens: entry("tokens.json"), pieces };
  const memory = { buffer: new ArrayBuffer(8) };
  const reports = [];
  const load = (signal = new AbortController().signal) => loadPair(plan, BASE, memory, (...report) => reports.push(report), signal);
  const text = () => new TextDecoder().decode(memory.buffer);
  return { server, held, load, text, reports };
}

test("the files arrive in memory with a report of all bytes, and the next visit asks for none", async (t) => {
  const { server, load, text, reports } = world(t);
  assert.deepEqual(await load(), { tokens: { pieces: [] }, isKept: true });
  assert.equal(text(), "01234567");
  assert.deepEqual(reports.at(-1), [21, 21]);
  const { length } = server.asked;
  await load();
  assert.equal(server.asked.length, length);
});

test("a download that broke continues with the missing piece", async (t) => {
  const { server, load, text } = world(t);
  const { answer } = server;
  server.answer = (name) => (name === "weights-01.bin" ? Promise.reject(new TypeError("network")) : answer(name));
  await assert.rejects(load(), { message: "The models did not download (no connection). Press Run to continue where the download stopped." });
  Object.assign(server, { answer, asked: [] });
  await load();
  assert.deepEqual(server.asked, ["weights-01.bin"]);
  assert.equal(text(), "01234567");
});

test("a damaged piece is asked for again, and is not used", async (t) => {
  const { server, held, load } = world(t);
  const { answer } = server;
  server.answer = (name) => (name === "weights-00.bin" ? new Response("012x") : answer(name));
  await assert.rejects(load(), { message: "The file weights-00.bin arrived damaged. Press Run to download it again." });
  assert.equal(server.asked.filter((name) => name === "weights-00.bin").length, 3);
  assert.equal(held.size, 1);
});

test("a piece that was damaged in storage is downloaded again", async (t) => {
  const { server, held, load, text } = world(t);
  await load();
  const url = [...held.keys()].find((address) => address.includes("weights-01"));
  held.set(url, new Response("4x67"));
  server.asked = [];
  await load();
  assert.deepEqual([server.asked, text()], [["weights-01.bin"], "01234567"]);
});

test("pieces of an earlier version are deleted", async (t) => {
  const { held, load } = world(t);
  held.set(`${BASE}weights-00.bin?old`, new Response("old"));
  held.set("http://host/other/weights-00.bin?old", new Response("of another copy"));
  await load();
  assert.deepEqual([...held.keys()].filter((url) => url.endsWith("old")), ["http://host/other/weights-00.bin?old"]);
});

test("a browser that refuses storage runs the models, and says so", async (t) => {
  const { load, text } = world(t, { refuses: true });
  assert.equal((await load()).isKept, false);
  assert.equal(text(), "01234567");
});

test("Stop ends a download; complete pieces are kept", async (t) => {
  const { server, held, load } = world(t);
  const stop = new AbortController();
  const { answer } = server;
  server.answer = (name) => {
    if (name === "weights-01.bin") stop.abort();
    return answer(name);
  };
  await assert.rejects(load(stop.signal), { name: "AbortError" });
  assert.equal(held.size, 2);
});

test("too little memory gives a sentence with the size", () => {
  const message = "This browser has no memory for the models: 9008 MB are needed. Close other tabs, then reload this page.";
  assert.throws(() => memoryFor({ memory: 9_007_000_000 }), { message });
});

test("the number of threads is that of the fastest pass, also if the page disturbs most passes", (t) => {
  let now = 0;
  let passed = 0;
  t.mock.method(performance, "now", () => now);
  const passes = {
    threads: 2,
    run: (lane, ids, start, scored, { threads }) => {
      passed += 1;
      const isDisturbed = threads === 2 && passed > 3;
      now += isDisturbed ? 40 : { 1: 19, 2: 11 }[threads];
    },
  };
  chooseThreads(passes);
  assert.equal(passes.threads, 2);
});
