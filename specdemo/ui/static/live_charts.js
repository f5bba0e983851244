// The charts that keep pace with a run: each has a layer, drawn at once, and Plotly follows when nothing moves.

import { LiveLayer } from "./live_layer.js";
import { LIVE } from "./plot_contents.js";

// Without a change, until Plotly draws what the layer shows; while a run plays, more is soon to come.
const QUIET_MS = 300;
const QUIET_PLAYING_MS = 1000;

export class LiveCharts {
  /**
   * `nodes` by chart; `sceneOf(name)` is what its layer has to show, or null while nobody sees it; `isPlaying()`
   * tells whether a run goes on.
   */
  constructor(nodes, sceneOf, isPlaying) {
    this.isPlaying = isPlaying;
    this.layers = new Map(LIVE.map((name) => [name, new LiveLayer(nodes.get(name), () => sceneOf(name))]));
    this.changedAt = new Map();
  }

  /** The chart has another size or theme; `layout` is Plotly's. */
  dress(name, layout) {
    this.layers.get(name)?.dress(layout);
  }

  /** What the chart shows has changed, at `now`. */
  change(name, now) {
    this.changedAt.set(name, now);
    this.layers.get(name)?.request();
  }

  /** The chart has come into sight. */
  look(name) {
    this.layers.get(name)?.request();
  }

  /** When Plotly may draw a chart at the earliest: at once for a new size or theme and for charts without a layer. */
  notBefore(name) {
    const layer = this.layers.get(name);
    if (!layer || layer.alone) return 0;
    return this.changedAt.get(name) + (this.isPlaying() ? QUIET_PLAYING_MS : QUIET_MS);
  }

  /** Plotly has drawn a chart; `same` where nothing has changed meanwhile. */
  settle(name, same) {
    this.layers.get(name)?.settle(same);
  }
}
