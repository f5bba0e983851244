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
  const instance = await WebAssembly.instantiate(module, { env: { memory, thread_number: () => me } });
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
      const numbers = new BigInt64Array(memory.buffer, at, fields.length);
      numbers.set(fields.map(BigInt));
      const { IDS, LOGITS, LOGIT_STRIDE } = plan.names;
      const ids = new BigInt64Array(memory.buffer, fields[IDS], plan.rows);
      const logits = (row) => new Float32Array(memory.buffer, fields[LOGITS] + 4 * row * fields[LOGIT_STRIDE], vocabulary);
      this.lanes[name] = { at, numbers, ids, logits };
    }
    this.draftIds = new Int32Array(memory.buffer, plan.id_map, plan.lanes.draft.vocabulary);
  }

  /** Append up to `plan.rows` ids to a lane's cache, at position `start`. The last `scored` rows get logits. */
  run(lane, ids, start, scored, threads = this.threads) {
    const { at, numbers, ids: place } = this.lanes[lane];
    if (start + ids.length > this.plan.capacity) throw new Error(`positions up to ${start + ids.length} of ${this.plan.capacity}`);
    const { ROWS, START, SCORED, THREADS } = this.plan.names;
    ids.forEach((id, index) => (place[index] = BigInt(id)));
    for (const [field, value] of [[ROWS, ids.length], [START, start], [SCORED, scored], [THREADS, threads]]) numbers[field] = BigInt(value);
    this.exports.set_team(threads);
    if (threads > 1) {
      Atomics.store(this.words, 1, at);
      Atomics.add(this.words, 0, MOST_THREADS - (this.words[0] % MOST_THREADS) + threads);
      Atomics.notify(this.words, 0);
    }
    this.exports.pass(at);
  }

  /** The logits of a row of the lane's last pass; the next pass overwrites them. */
  logits(lane, row) {
    return this.lanes[lane].logits(row);
  }
}
