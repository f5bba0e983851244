// The kinds of drafters as Python's table has them: who drafts, and where tokens put forward as certain are from.

let kinds = {};

/** Take in the table, once, before anything is shown: { name: { who, source } }. */
export function learnDrafters(table) {
  kinds = table;
}

/** Where the tokens of a kind that only copies come from, as a clause; undefined for one that computes. */
export function sourceOf(kind) {
  return kinds[kind]?.source || undefined;
}

/** Who drafts, within a sentence; `draft` is what the draft model is called. */
export function whoDrafts(kind, draft) {
  return (kinds[kind]?.who ?? "{draft}").replace("{draft}", `the ${draft}`);
}
