// The scroll position of the lanes, and the choice of the rounds that are in the page.

const NEAR_END_PX = 48;
const STILL_MS = 150; // the time without scrolling after which it has ended, in browsers that do not report the end
const REPORTS_END = "onscrollend" in globalThis;

/**
 * Scrolls all lanes together: to the end of the text while it grows, else to the place to which the visitor scrolled one
 * of them. Lanes are aligned by token, not by pixel, because the start of a long text may not be in the page.
 */
export class LaneScroll {
  constructor(views) {
    this.views = views;
    this.isHeld = false;
    this.placed = new Map(); // maps each box to the position to which this class scrolled it
    const sizes = new ResizeObserver(() => this.reflow());
    for (const view of views) {
      const { box } = view;
      box.addEventListener("scroll", () => this.scrolled(view), { passive: true });
      if (REPORTS_END) box.addEventListener("scrollend", () => this.wholeRows(view), { passive: true });
      sizes.observe(box);
    }
    this.setFollowing(true);
  }

  setFollowing(following) {
    this.following = following && !this.isHeld;
    for (const view of this.views) view.following = this.following;
  }

  /** While held, the lanes stay where they are. Afterwards they follow the text again if a lane shows its end. */
  hold(isHeld) {
    if (this.isHeld === isHeld) return;
    this.isHeld = isHeld;
    this.setFollowing(this.views.some(isNearEnd));
  }

  /** Keep the end in sight. This costs a layout, so call it after all lanes have changed. */
  follow() {
    if (!this.following) return;
    const seen = this.views.filter(({ box }) => box.clientHeight);
    if (!seen.length) return;
    const leader = seen.reduce((best, view) => (view.reach > best.reach ? view : best));
    this.align(leader, bottomOf(leader), seen);
  }

  /** Scroll to the token at `position` of the text, in every lane that has it. */
  showToken(position) {
    this.setFollowing(false);
    const seen = this.views.filter(({ box }) => box.clientHeight);
    for (const view of seen) view.showAll();
    const leader = seen.find((view) => position < view.reach);
    if (leader) this.align(leader, Math.min(bottomOf(leader), leader.topOf(position)), seen);
  }

  /** Align the lanes again after lines may have changed: another width or font size, or tokens shown or hidden. */
  reflow() {
    for (const view of this.views) view.reflow();
    this.follow();
    if (!this.following) for (const view of this.views) this.wholeRows(view);
  }

  // Every other lane shows the leader's topmost token on the same row, or, without that token, the end of its text.
  // All layout reads come before all writes.
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
    this.setFollowing(isNearEnd(view));
    if (!this.following) for (const each of this.views) each.showAll();
    this.align(view, box.scrollTop, this.views.filter((each) => each.box.clientHeight));
    if (REPORTS_END) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.wholeRows(view), STILL_MS);
  }

  // Sets a box to a whole number of rows, so that no line is cut.
  wholeRows({ box, row }) {
    const rest = box.scrollTop % row;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 1;
    if (rest >= 1 && row - rest >= 1 && !atEnd) box.scrollTop = Math.round(box.scrollTop / row) * row;
  }
}

function isNearEnd({ height, box }) {
  return box.clientHeight > 0 && height - box.scrollTop - box.clientHeight < NEAR_END_PX;
}

/** The scroll position at which a lane's last row is the lowest visible one. */
function bottomOf({ height, box }) {
  return Math.max(0, height - box.clientHeight);
}

const WINDOW_TOKENS = 360;
const REST_MS = 250;
const EDGE_PX = 1;

/**
 * The rounds of a lane that are in the page: all rounds at rest, but only the last few hundred tokens while the text
 * moves. When a text grows, browsers lay all of it out again, which is too slow for long texts. The part in the page
 * begins at the start of a line, so that no visible line changes.
 */
export class RoundFlow {
  constructor(box) {
    this.box = box;
    this.clear();
  }

  clear() {
    clearTimeout(this.timer);
    this.box.replaceChildren();
    this.box.dir = "auto";
    this.nodes = [];
    this.first = 0; // nodes[first] .. nodes[shown - 1] are in the page
    this.shown = 0;
    this.forgetLines();
  }

  /** Set the element of the prompt, which comes before the first round. */
  setHead(head) {
    this.head = head;
    this.box.prepend(head);
  }

  /** Forget where lines start, because they may break elsewhere now. */
  forgetLines() {
    // Maps the first round of a line to the width in px of its leading space, which hangs at the end of the line above.
    this.starts = new Map();
    this.measured = 0;
  }

  /** Put the rounds before index `wanted` into the page; while `moving`, only the last rounds, which can be seen. */
  show(nodes, wanted, moving) {
    this.nodes = nodes;
    if (moving && wanted > this.first) this.cut(this.frontFor(wanted));
    else this.cut(0);
    while (this.shown > Math.max(wanted, this.first)) this.nodes[--this.shown].element.remove();
    if (this.shown < wanted) this.box.append(fragmentOf(nodes, this.shown, wanted));
    this.shown = wanted;
    clearTimeout(this.timer);
    if (this.first || this.measured < this.steady) this.timer = setTimeout(() => this.rest(), REST_MS);
  }

  /** Put all of the text into the page, and measure where its lines begin; this is needed when the text moves again. */
  rest() {
    const fromEnd = this.box.scrollHeight - this.box.scrollTop;
    this.cut(0);
    this.box.scrollTop = this.box.scrollHeight - fromEnd;
    this.measure();
  }

  /** The index of the first round to have in the page: a known start of a line, far enough before `wanted`. */
  frontFor(wanted) {
    const perRound = tokensPerRound(this.nodes, wanted);
    const span = Math.ceil(WINDOW_TOKENS / perRound);
    const kept = wanted - this.first;
    if (kept >= span / 2 && kept <= 2 * span) return this.first;
    let front = Math.max(0, wanted - span);
    while (front > 0 && !this.starts.has(front)) front -= 1;
    return front;
  }

  cut(front) {
    if (front === this.first) return;
    if (front < this.first) {
      const added = fragmentOf(this.nodes, front, Math.min(this.first, this.shown));
      this.nodes[this.first].element.style.marginInlineStart = "";
      if (this.nodes[this.first].element.isConnected) this.nodes[this.first].element.before(added);
      else this.box.append(added);
    } else {
      for (let index = this.first; index < Math.min(front, this.shown); index += 1) this.nodes[index].element.remove();
      this.nodes[this.first].element.style.marginInlineStart = "";
    }
    this.first = front;
    this.shown = Math.max(this.shown, front);
    if (this.head) this.head.hidden = front > 0;
    if (front > 0) this.nodes[front].element.style.marginInlineStart = `${-this.starts.get(front)}px`;
  }

  /** The number of rounds that will not move; in later rounds, discarded tokens may still shrink to a tick. */
  get steady() {
    let count = this.shown;
    while (count > 0 && !this.nodes[count - 1].element.hasAttribute("data-folded")) count -= 1;
    return count;
  }

  measure() {
    const { direction, paddingLeft } = getComputedStyle(this.box);
    this.box.dir = direction; // the start of the text, which decides it, may leave the page
    const side = direction === "rtl" ? "right" : "left";
    const padding = parseFloat(paddingLeft) * (direction === "rtl" ? -1 : 1);
    const edge = this.box.getBoundingClientRect()[side] + padding;
    const steady = this.steady;
    for (let index = this.measured; index < steady; index += 1) {
      const hanging = hangingSpace(this.nodes[index].kept[0], side, edge);
      if (hanging !== null) this.starts.set(index, hanging);
    }
    this.measured = Math.max(this.measured, steady);
  }
}

/** The width of a token's leading space, which hangs at the end of the line above; null if the token starts no line. */
function hangingSpace(token, side, edge) {
  const rects = token?.getClientRects() ?? [];
  if (!rects.length) return null;
  if (Math.abs(rects[0][side] - edge) <= EDGE_PX) return 0;
  const wraps = rects.length === 2 && Math.abs(rects[1][side] - edge) <= EDGE_PX;
  return wraps && token.textContent.startsWith(" ") ? rects[0].width : null;
}

function tokensPerRound(nodes, count) {
  let tokens = 0;
  const sample = Math.min(count, 50);
  for (let index = 0; index < sample; index += 1) tokens += nodes[index].element.childElementCount;
  return Math.max(1, tokens / Math.max(1, sample));
}

function fragmentOf(nodes, from, to) {
  const fragment = document.createDocumentFragment();
  for (let index = from; index < to; index += 1) fragment.append(nodes[index].element);
  return fragment;
}
