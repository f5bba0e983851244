// The compiled passes in WebAssembly: their memory, their threads, and the call of a pass. Runs in browsers and in node.
// `plan` is what specdemo/pairs/browser_files.py writes: addresses in memory, and the fields of each lane's passes.

const PAGE = 65536;
const MOST_THREADS = 16; // a signal is a number of passes times this, plus the number of threads of the pass
const SPINS = 3000; // a thread spins between the passes of a round, and sleeps between rounds
const CODES = ["product_bf16", "product_int8", "attention"]; // by their index in the module's table, from 1 on

/** Memory for a plan. It is shared, but without cross-origin isolation no other thread can get it. */
export function memoryFor(plan) {
  const pages = Math.ceil(plan.memory / PAGE);
  try {
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  } catch (error) {
    const size = Math.ceil((pages * PAGE) / 1e6);
    throw new Error(`This browser has no memory for the models: ${size} MB are needed. Close other tabs, then reload this page.`, { cause: error });
  }
}

/** An instance of the module for the thread with the number `me`; thread 0 calls passes, the others `serve` them. */
export async function instanceOf(module, memory, plan, me) {
  const instance = await WebAssembly.instantiate(module, { env: { memory, thread_number: () => me, exponential: Math.exp } });
  if (me > 0) instance.exports.__stack_pointer.value = plan.control + (me + 1) * plan.stack_bytes;
  return instance;
}

/** Take part in passes, for as long as the page is open. Calls `isReady` once. */
export function serve(instance, memory, plan, me, isReady) {
  const words = new Int32Array(memory.buffer, plan.control, 2);
  let seen = Atomics.load(words, 0);
  isReady();
  for (;;) {
    for (let spins = 0; Atomics.load(words, 0) === seen; ) if (++spins > SPINS) Atomics.wait(words, 0, seen);
    seen = Atomics.load(words, 0);
    if (me < seen % MOST_THREADS) instance.exports.pass(Atomics.load(words, 1));
  }
}

export class Passes {
  constructor(instance, memory, plan, threads) {
    Object.assign(this, { plan, threads, exports: instance.exports });
    const found = CODES.map((name) => this.exports[`index_of_${name}`]());
    if (`${found}` !== "1,2,3") throw new Error(`the functions of the module have the indices ${found}`);
    this.words = new Int32Array(memory.buffer, plan.control, 2); // the signal, and the address of the pass's fields
    this.lanes = {};
    for (const [name, { at, fields, vocabulary }] of Object.entries(plan.lanes)) {
      const { ids, next, id_map, logits: first, logit_stride: stride, best, largest, total } = fields;
      const longs = (place, count) => new BigInt64Array(memory.buffer, place, count);
      const floats = (place) => new Float32Array(memory.buffer, place, plan.lines);
      const logits = (row) => new Float32Array(memory.buffer, first + 4 * row * stride, vocabulary);
      const results = { written: longs(next, plan.lines), best: longs(best, plan.lines), largest: floats(largest), total: floats(total) };
      const numbers = longs(at, Object.keys(fields).length);
      this.lanes[name] = { at, fields, numbers, ids: longs(ids, plan.rows), logits, idMap: id_map && longs(id_map, vocabulary), ...results };
    }
  }

  /**
   * Append up to `plan.rows` ids to a lane's cache, at position `start`. The last `scored` rows get logits. With `steps`,
   * the best token of the last row is the input of the next pass, and so on; `written` has these tokens.
   */
  run(lane, ids, start, scored, { steps = 0, threads = this.threads } = {}) {
    const { at, fields, numbers, ids: place } = this.lanes[lane];
    const end = start + ids.length + Math.max(0, steps - 1);
    if (end > this.plan.capacity) throw new Error(`positions up to ${end} of ${this.plan.capacity}`);
    ids.forEach((id, index) => (place[index] = BigInt(id)));
    const own = { rows: ids.length, start, scored, threads, steps: Math.max(1, steps), next: steps && fields.next };
    numbers.set(Object.values({ ...fields, ...own }).map(BigInt)); // all, because a pass with steps changes some
    this.exports.set_team(threads);
    if (threads > 1) {
      Atomics.store(this.words, 1, at);
      Atomics.add(this.words, 0, MOST_THREADS - (this.words[0] % MOST_THREADS) + threads);
      Atomics.notify(this.words, 0);
    }
    this.exports.pass(at);
  }

  /** The logits of a row, or of a step, of the lane's last pass; the next pass overwrites them. */
  logits(lane, row) {
    return this.lanes[lane].logits(row);
  }

  /** The index of the largest of these logits, the first of several. */
  best(lane, row) {
    const { best, largest, total } = this.lanes[lane];
    if (!Number.isFinite(largest[row]) || !Number.isFinite(total[row])) {
      throw new Error("The models gave values that are not numbers. Reload this page; if this happens again, use another browser.");
    }
    return Number(best[row]);
  }

  /** The tokens of `steps` steps. */
  written(lane, steps) {
    for (let step = 0; step < steps; step += 1) this.best(lane, step);
    return [...this.lanes[lane].written.subarray(0, steps)].map(Number);
  }
}
