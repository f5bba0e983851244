// The target pass over one round: a bar that goes over all of its tokens at once while the pass lasts.

import { element } from "./dom.js";
import { sharesProcessor } from "./processor.js";

const SHORTEST_MS = 60; // a shorter pass would only flicker
const DRIFT_MS = 90; // further from the clock than this it is set right
const LABEL_PX = 84;

export class Sweep {
  constructor() {
    this.node = null;
  }

  /** The pass over `node` (a `RoundNode`) at the clock of `player`, or none for null. Costs a layout where one begins. */
  show(node, box, player) {
    const length = node && (1000 * node.entry.round.verify_s) / player.rate;
    if (!node || length < SHORTEST_MS) return this.clear();
    if (node !== this.node) this.begin(node, box);
    this.keepTime(((player.time - node.entry.draftEnd) * 1000) / player.rate, length, player.playing);
  }

  clear() {
    if (!this.node) return;
    this.node = null;
    for (const strip of this.strips) strip.remove();
  }

  // A strip for each line the round is on, placed against the round itself, so that it moves with the text.
  begin(node, box) {
    this.clear();
    this.node = node;
    const rects = [...node.element.getClientRects()].filter(({ width }) => width > 0);
    const right = box.getBoundingClientRect().right;
    const [first, last] = [rects[0], rects.at(-1)];
    this.strips = rects.map((rect) => {
      const strip = element("span", "sd-sweep", element("span", "sd-sweep-track", element("i")));
      strip.style.cssText = `left:${rect.left - first.left}px;top:${rect.top - first.top}px;width:${rect.width}px;height:${rect.height}px`;
      strip.toggleAttribute("data-label", rect === last && right - rect.right > LABEL_PX);
      return strip;
    });
    node.element.append(...this.strips);
    const frames = [{ transform: "translateX(-100%)" }, { transform: "none" }];
    const still = sharesProcessor() || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const moved = still ? [] : this.strips;
    this.animations = moved.map((strip) => strip.firstChild.firstChild.animate(frames, { duration: 1, fill: "both" }));
  }

  keepTime(passed, length, running) {
    for (const animation of this.animations) {
      animation.effect.updateTiming({ duration: length });
      const at = Math.min(Math.max(0, passed), length);
      if (!running || Math.abs(Math.min(animation.currentTime, length) - at) > DRIFT_MS) animation.currentTime = at;
      if (!running) animation.pause();
      else if (animation.playState === "paused") animation.play();
    }
  }
}
