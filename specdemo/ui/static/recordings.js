// Recorded runs: the shipped ones by name, and trace files from the visitor's disk. The server checks and unfolds them.

const PATH = "../specdemo-traces";

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
  return eventsFrom(await fetch(new URL(PATH, base), { method: "POST", body: file }));
}

async function eventsFrom(response) {
  if (response.ok) return response.text();
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `The server could not be asked for the run (status ${response.status}).`);
}
