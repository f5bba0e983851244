// Recorded runs: the shipped ones by name, and trace files from the visitor's disk. The server checks and unfolds them.

const PATH = "../specdemo-traces";
// What the server takes at most; it hangs up on more, and a browser would then not show why.
const MOST_BYTES = 16_000_000;

/** Shipped recordings: name, title, about, device, pair and figures of each; none where there is no server. */
export async function listRecordings(base) {
  const response = await fetch(new URL(PATH, base));
  return response.ok ? response.json() : [];
}

/** Events of a shipped recording as NDJSON. */
export async function fetchRecording(base, name) {
  return eventsFrom(await fetch(new URL(`${PATH}/${encodeURIComponent(name)}`, base)));
}

/** Events of a trace file as NDJSON. */
export async function openTrace(base, file) {
  if (file.size > MOST_BYTES) throw new Error(`The file is too large; a trace has at most ${MOST_BYTES.toLocaleString("en")} bytes.`);
  return eventsFrom(await fetch(new URL(PATH, base), { method: "POST", body: file }));
}

async function eventsFrom(response) {
  if (response.ok) return response.text();
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `The server could not be asked for the run (status ${response.status}).`);
}
