// All lanes scroll together: at the end of the text while it grows, else where the visitor has scrolled one of them.
// Lanes are held at the same token, not the same pixel, since the front of a long text may not be in the page.

const NEAR_END_PX = 48;

export class LaneScroll {
  /** `views` are the lanes. */
  constructor(views) {
    this.views = views;
    this.placed = new Map(); // view -> where it was scrolled to from here
    const sizes = new ResizeObserver(() => this.reflow());
    for (const view of views) {
      const { box } = view;
      box.addEventListener("scroll", () => this.scrolled(view), { passive: true });
      box.addEventListener("scrollend", () => this.wholeRows(view), { passive: true });
      sizes.observe(box);
    }
    this.begin();
  }

  /** For another run. */
  begin() {
    this.setFollowing(true);
  }

  setFollowing(following) {
    this.following = following;
    for (const view of this.views) view.following = following;
  }

  /** Keep the end in sight. Costs a layout: all lanes should have changed before. */
  follow() {
    if (!this.following) return;
    const seen = this.views.filter(({ box }) => box.clientHeight);
    if (!seen.length) return;
    const leader = seen.reduce((best, view) => (view.reach > best.reach ? view : best));
    this.align(leader, bottomOf(leader), seen);
  }

  /** Bring the token at `position` of the text into sight, in every lane that has it. */
  showToken(position) {
    this.setFollowing(false);
    const seen = this.views.filter(({ box }) => box.clientHeight);
    for (const view of seen) view.showAll();
    const leader = seen.find((view) => position < view.reach);
    if (leader) this.align(leader, Math.min(bottomOf(leader), leader.topOf(position)), seen);
  }

  /** Lines may break elsewhere: another width, another size of letters, more or fewer tokens in sight. */
  reflow() {
    for (const view of this.views) view.reflow();
    this.follow();
    if (!this.following) for (const view of this.views) this.wholeRows(view);
  }

  // Each of the others shows the leader's topmost token on the same row, or the end of its text where it lacks that.
  // First everything is read, then everything is written.
  align(leader, top, seen) {
    const anchor = leader.firstTokenFrom(top);
    const tops = seen.map((view) => {
      if (view === leader) return top;
      const own = this.following ? bottomOf(view) : 0;
      const same = anchor && view.topOf(anchor.position);
      return same === null || same === undefined ? bottomOf(view) : Math.max(own, same - anchor.top + top);
    });
    const rows = seen.map((view, index) => Math.max(0, Math.round(tops[index] / view.row) * view.row));
    const spare = seen.map((view, index) => rows[index] + view.box.clientHeight - view.height);
    seen.forEach((view, index) => view.setSpare(view === leader ? 0 : Math.max(0, spare[index])));
    seen.forEach((view, index) => this.place(view, view === leader ? top : rows[index]));
  }

  place({ box }, top) {
    if (Math.abs(box.scrollTop - top) >= 1) box.scrollTop = top;
    this.placed.set(box, box.scrollTop);
  }

  scrolled(view) {
    const { box } = view;
    if (Math.abs(box.scrollTop - (this.placed.get(box) ?? 0)) < 1) return;
    this.placed.set(box, box.scrollTop);
    this.setFollowing(view.height - box.scrollTop - box.clientHeight < NEAR_END_PX);
    if (!this.following) for (const each of this.views) each.showAll();
    this.align(view, box.scrollTop, this.views.filter((each) => each.box.clientHeight));
  }

  // No line is left half cut.
  wholeRows({ box, row }) {
    const rest = box.scrollTop % row;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 1;
    if (rest >= 1 && row - rest >= 1 && !atEnd) box.scrollTop = Math.round(box.scrollTop / row) * row;
  }
}

/** Where a lane is scrolled to when its last row is the lowest in sight. */
function bottomOf({ height, box }) {
  return Math.max(0, height - box.clientHeight);
}
