// The files of the pair: their download in pieces, which the browser keeps, and the weights in memory.

const CACHE = "specdemo-live";
const TRIES = 3;

/** Read the plan. It is small, so it is asked for at every visit. */
export async function fetchPlan(base) {
  return (await fetched(new URL("pair.json", base))).json();
}

/** The number of bytes to download on the first visit. */
function downloadBytes(plan) {
  return [plan.tokens, ...plan.pieces].reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Download the files that this browser has not kept, put the weights into `memory`, and return `{ tokens, isKept }`: the
 * content of the tokenizer's file, and whether the browser keeps the files. Calls `report(bytes, total)` meanwhile. The
 * `signal` stops the download; the pieces that have arrived are kept.
 */
export async function loadPair(plan, base, memory, report, signal) {
  const kept = await globalThis.caches?.open(CACHE).catch(() => null);
  const total = downloadBytes(plan);
  let [done, isKept, tokens] = [0, Boolean(kept), null];
  const wanted = new Set();
  for (const entry of [plan.tokens, ...plan.pieces]) {
    const url = new URL(`${entry.file}?${entry.sha256}`, base).href;
    wanted.add(url);
    const before = done;
    const found = await keptBytes(kept, url, entry);
    const bytes = found ?? (await downloaded(url, entry, signal, (received) => report(before + received, total)));
    signal.throwIfAborted();
    if (!found && isKept) isKept = await kept.put(url, new Response(bytes)).then(() => true, () => false);
    if (entry.parts) place(bytes, entry.parts, memory);
    else tokens = JSON.parse(new TextDecoder().decode(bytes));
    report((done += entry.bytes), total);
  }
  for (const { url } of (await kept?.keys()) ?? []) if (url.startsWith(base) && !wanted.has(url)) await kept.delete(url);
  return { tokens, isKept };
}

async function keptBytes(kept, url, entry) {
  const response = await kept?.match(url).catch(() => null);
  const bytes = response && new Uint8Array(await response.arrayBuffer());
  return bytes && (await isIntact(bytes, entry)) ? bytes : null;
}

async function downloaded(url, entry, signal, report) {
  for (let left = TRIES - 1; ; left--) {
    try {
      const bytes = await received(await fetched(url, signal), entry.bytes, report);
      if (await isIntact(bytes, entry)) return bytes;
      throw new Error(`The file ${entry.file} arrived damaged. Press Run to download it again.`);
    } catch (error) {
      signal.throwIfAborted();
      if (!left) throw error;
    }
  }
}

async function fetched(url, signal) {
  const response = await fetch(url, { signal }).catch(() => null);
  if (response?.ok) return response;
  const reason = response ? `status ${response.status}` : "no connection";
  throw new Error(`The models did not download (${reason}). Press Run to continue where the download stopped.`);
}

async function received(response, size, report) {
  const bytes = new Uint8Array(size);
  let at = 0;
  try {
    for (const reader = response.body.getReader(); ; ) {
      const { value, done } = await reader.read();
      if (done) return bytes.subarray(0, at);
      bytes.set(value.subarray(0, size - at), at);
      report((at = Math.min(size, at + value.length)));
    }
  } catch {
    throw new Error("The connection broke. Press Run to continue where the download stopped.");
  }
}

// Without https a browser has no checksums, and only the size is compared.
async function isIntact(bytes, { bytes: size, sha256 }) {
  if (bytes.length !== size) return false;
  if (!globalThis.crypto?.subtle) return true;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("") === sha256;
}

/** Put the parts of a piece into memory; quantized ones become the bf16 numbers of the server, in the order of a pass. */
export function place(bytes, parts, memory) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  for (const [to, kind, rows, columns] of parts) {
    if (kind === "raw") {
      new Uint8Array(memory.buffer, to, rows * columns).set(bytes.subarray(at, at + rows * columns));
      at += rows * columns;
    } else at = { Q4_1: placeQ4, Q8_0: placeQ8 }[kind](bytes, view, at, new Uint16Array(memory.buffer, to, rows * columns), rows, columns);
  }
}

// In memory, four rows take turns, with four numbers each.
const placeOf = (row, column, columns) => (row >> 2) * 4 * columns + column * 4 + (row & 3) * 4;

// A block has 32 numbers: scale and minimum in fp16, then 16 bytes with two numbers each.
function placeQ4(bytes, view, at, memory, rows, columns) {
  const numbers = new Uint16Array(16);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column += 32, at += 20) {
      const [scale, least] = [HALVES[view.getUint16(at, true)], HALVES[view.getUint16(at + 2, true)]];
      for (let value = 0; value < 16; value++) numbers[value] = bf16(scale * value + least);
      const to = placeOf(row, column, columns);
      for (let index = 0; index < 16; index++) {
        const place = to + (index >> 2) * 16 + (index & 3);
        const pair = bytes[at + 4 + index];
        memory[place] = numbers[pair & 15];
        memory[place + 64] = numbers[pair >> 4];
      }
    }
  }
  return at;
}

// A block has a scale in fp16 and 32 numbers in int8.
function placeQ8(bytes, view, at, memory, rows, columns) {
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column += 32, at += 34) {
      const scale = HALVES[view.getUint16(at, true)];
      const to = placeOf(row, column, columns);
      for (let index = 0; index < 32; index++) memory[to + (index >> 2) * 16 + (index & 3)] = bf16(scale * view.getInt8(at + 2 + index));
    }
  }
  return at;
}

const HALVES = Float64Array.from({ length: 65536 }, (_, bits) => {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  return bits & 32768 ? -size : size;
});

const single = new Float32Array(1);
const word = new Uint32Array(single.buffer);

// Rounds to the nearest number, in a tie to the even one. The argument is exact, so only fp32 rounds before.
function bf16(number) {
  single[0] = number;
  return (word[0] + 0x7fff + ((word[0] >>> 16) & 1)) >>> 16;
}
