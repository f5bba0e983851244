// The contents of the theory's chart: the speedup over acceptance rate and draft length, the break-even line, the best k.

import { bestDraftLength, breakEvenAlpha, theoreticalSpeedup } from "./theory.js";

const ALPHA_STEPS = 50;

/** Fill the chart of the theory for the costs of `point`. Marks the point, and a `run` with `alpha` and `k` unless null. */
export function fillTheory({ data }, point, run, maxK) {
  const alphas = Array.from({ length: ALPHA_STEPS + 1 }, (_, step) => step / ALPHA_STEPS);
  const lengths = Array.from({ length: maxK }, (_, index) => index + 1);
  const speedups = lengths.map((k) => alphas.map((alpha) => theoreticalSpeedup({ ...point, alpha, k })));
  const breakEven = lengths.map((k) => ({ alpha: breakEvenAlpha({ ...point, k }), k })).filter(({ alpha }) => alpha !== null);
  const best = alphas.map((alpha) => ({ alpha, k: bestDraftLength({ ...point, alpha }, maxK).k })).filter(({ k }) => k > 0);
  const spots = { "break-even": breakEven, best, chosen: [point], run: run ? [run] : [] };
  for (const trace of data) {
    if (trace.uid === "theory-surface") fillSurface(trace, alphas, lengths, speedups);
    else Object.assign(trace, { x: spots[trace.uid].map(({ alpha }) => alpha), y: spots[trace.uid].map(({ k }) => k) });
  }
  data.find(({ uid }) => uid === "run").visible = Boolean(run);
}

// The middle color stands at a speedup of 1.
function fillSurface(surface, alphas, lengths, speedups) {
  const highest = Math.max(1, ...speedups.flat());
  const [[, slower], [, even], [, faster]] = surface.colorscale;
  const colorscale = [[0, slower], [1 / highest, even], [1, highest > 1 ? faster : even]];
  Object.assign(surface, { x: alphas, y: lengths, z: speedups, zmax: highest, colorscale });
}
