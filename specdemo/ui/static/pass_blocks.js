// How many target passes each lane has taken, as blocks of one size in all lanes.

const FULL_ROW = 40; // beyond this many the blocks get narrower

export class PassBlocks {
  constructor(root) {
    this.rows = new Map();
    for (const row of root.querySelectorAll("[data-lane] .sd-passes")) {
      this.rows.set(row.closest("[data-lane]").dataset.lane, { row, count: row.querySelector("b"), shown: null });
    }
    this.most = FULL_ROW;
  }

  /** `state` is that of every lane, see `Trace.stateAt`; a round is a pass, counted at its verdict. */
  show(state) {
    for (const [lane, entry] of this.rows) {
      const settled = state[lane]?.settled ?? 0;
      if (entry.shown === settled) continue;
      entry.shown = settled;
      entry.count.textContent = settled;
      entry.row.style.setProperty("--passes", settled);
    }
    const most = Math.max(FULL_ROW, ...[...this.rows.values()].map(({ shown }) => shown));
    if (most === this.most) return;
    this.most = most;
    // Not on what holds them all: the browser would look at all the rest of it again.
    for (const { row } of this.rows.values()) row.style.setProperty("--most-passes", most);
  }
}
