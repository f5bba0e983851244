// node browser_pass.mjs LIVE MODULE FOLDER: compares the passes of a module with what browser_pass.py wrote, bit for bit:
// rows together and one by one, with one thread and with two.

import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { parentPort, Worker, workerData } from "node:worker_threads";

setFlagsFromString("--experimental-wasm-relaxed-simd"); // node 20 needs it
const [live, wasm, folder] = workerData?.files ?? process.argv.slice(2);
const { instanceOf, memoryFor, Passes, serve } = await import(`${live}/passes.js`);

if (workerData) {
  const { memory, plan, me } = workerData;
  const instance = await instanceOf(new WebAssembly.Module(readFileSync(wasm)), memory, plan, me);
  serve(instance, memory, plan, me, () => parentPort.postMessage("ready"));
}

const { place } = await import(`${live}/weights.js`);
const plan = JSON.parse(readFileSync(`${folder}/pair.json`));
const memory = memoryFor(plan);
for (const { file, parts } of plan.pieces) place(new Uint8Array(readFileSync(`${folder}/${file}`)), parts, memory);
const passes = new Passes(await instanceOf(new WebAssembly.Module(readFileSync(wasm)), memory, plan, 0), memory, plan, 2);
const helper = new Worker(new URL(import.meta.url), { workerData: { memory, plan, me: 1, files: [live, wasm, folder] } });
await new Promise((done, failed) => helper.once("message", done).once("error", failed));

const bits = (numbers) => [...new Uint32Array(numbers.slice().buffer)];
const { ids, prompt, logits, written } = plan.expected;
for (const [lane, stored] of Object.entries(logits)) {
  const all = new Uint32Array(new Uint8Array(Buffer.from(stored, "base64")).buffer);
  const width = plan.lanes[lane].vocabulary;
  const rows = ids.slice(prompt);
  const check = (place, row, threads) => {
    if (`${bits(passes.logits(lane, place))}` !== `${[...all.subarray(row * width, (row + 1) * width)]}`) throw new Error(`${lane}, row ${row}, ${threads} threads`);
    const found = passes.logits(lane, place);
    if (found[passes.best(lane, place)] !== Math.max(...found)) throw new Error(`the best token of ${lane}, row ${row}`);
  };
  for (const threads of [1, 2]) {
    for (let first = 0; first < prompt; first += plan.rows) passes.run(lane, ids.slice(first, Math.min(prompt, first + plan.rows)), first, 0, { threads });
    passes.run(lane, rows, prompt, rows.length, { threads });
    for (const row of rows.keys()) check(row, row, threads);
    for (const [row, id] of rows.entries()) {
      passes.run(lane, [id], prompt + row, 1, { threads });
      check(0, row, threads);
    }
    if (lane !== "draft") continue;
    passes.run(lane, ids.slice(-1), ids.length - 1, 1, { steps: written.length, threads });
    const steps = passes.written(lane, written.length);
    if (`${steps}` !== `${written}`) throw new Error(`a draft of ${steps} instead of ${written}`);
  }
}
console.log("equal");
process.exit(0);
