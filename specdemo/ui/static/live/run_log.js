// The events of a run with their figures and sentences: records/events.py for a greedy run in a browser.

import { SPECULATIVE } from "../stage/trace.js";
import { distinctShare, Tally } from "./figures.js";
import { badge, closingSentence, doubt, draftDivergenceSentence, remarks } from "./sentences.js";
import { RESAMPLES, spread } from "./spread.js";

const RENEWED = 4;
const RUNNING_RESAMPLES = 200;

/** `blank` is the run without its rounds; `pieceOf` returns the bytes of an id in base64. */
export class RunLog {
  constructor(blank, specials, pieceOf) {
    Object.assign(this, { blank, specials, pieceOf, rounds: {}, trusted: null });
    this.sent = new Set(Object.keys(blank.pieces).map(Number));
    this.tally = new Tally(blank.calibration);
  }

  start() {
    return { type: "start", run: this.blank, pieces: this.blank.pieces, specials: this.specials };
  }

  round(lane, round) {
    (this.rounds[lane] ??= []).push(round);
    this.tally.add(lane, round);
    const totals = this.tally.totals();
    const fresh = [...idsIn(round)].filter((id) => !this.sent.has(id)).sort((one, other) => one - other);
    for (const id of fresh) this.sent.add(id);
    const pieces = Object.fromEntries(fresh.map((id) => [id, this.pieceOf(id)]));
    const event = { type: "round", lane, round, totals, pieces };
    if (totals.speedup !== null) {
      const count = Object.values(this.rounds).reduce((sum, { length }) => sum + length, 0);
      if (!this.trusted || count % RENEWED === 0) {
        this.trusted = spread(this.rounds, RUNNING_RESAMPLES);
        event.spread = this.trusted && { low: this.trusted.low, high: this.trusted.high };
      }
    }
    const doubted = doubt(totals, this.trusted);
    if (doubted) event.doubt = doubted;
    return event;
  }

  end() {
    const totals = this.tally.totals();
    const { config, calibration } = this.blank;
    const { finish } = this.rounds[SPECULATIVE].at(-1);
    const trusted = totals.speedup === null ? null : spread(this.rounds, RESAMPLES);
    const distinct = distinctShare(this.rounds[SPECULATIVE]);
    return {
      type: "end",
      sentence: closingSentence(totals, finish, config, calibration),
      remarks: remarks(totals, finish, distinct, trusted),
      badge: badge(totals),
      draft_divergence: draftDivergenceSentence(totals),
      totals,
      spread: trusted,
      speedups: totals.speedup === null ? [] : [totals.speedup],
      doubt: doubt(totals, trusted),
      finish,
    };
  }
}

function idsIn({ drafted, emission }) {
  const listed = [...drafted.flatMap(({ draft_top: draft, target_top: target }) => [...draft, ...target]), ...(emission?.top ?? [])];
  return new Set([...listed.map(([id]) => id), ...drafted.map(({ id }) => id), ...(emission ? [emission.id] : [])]);
}
