// The charts that keep pace with a run: each has a layer, drawn at once, and Plotly follows when nothing moves.

import { LiveLayer } from "./live_layer.js";
import { LIVE } from "./plot_contents.js";

const QUIET_MS = 300; // without a change, until Plotly draws what the layer shows

export class LiveCharts {
  /** `nodes` by chart; `sceneOf(name)` is what its layer has to show, or null while nobody sees it. */
  constructor(nodes, sceneOf) {
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
    return !layer || layer.alone ? 0 : this.changedAt.get(name) + QUIET_MS;
  }

  /** Plotly has drawn a chart; `same` where nothing has changed meanwhile. */
  settle(name, same) {
    this.layers.get(name)?.settle(same);
  }
}
