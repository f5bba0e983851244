// The theory of speculative decoding, as in records/theory.py. A point has the acceptance rate `alpha`, the draft length
// `k`, the cost ratio `c` and the `growth` of the verification cost: v(n) = 1 + growth · (n − 1). The unit of all costs is
// a target pass over one token.

const ALPHA_STEPS = 50;
const BISECTIONS = 50;

/** E[τ] = (1 − α^(k+1)) / (1 − α), the expected tokens of a round (Leviathan et al. 2023, eq. 1). */
export function expectedTokens({ alpha, k }) {
  return alpha >= 1 ? k + 1 : (1 - alpha ** (k + 1)) / (1 - alpha);
}

/** k·c + v(k + 1). */
export function roundCost({ k, c, growth }) {
  return k * c + 1 + growth * k;
}

/** Theorem 3.8 of Leviathan et al. 2023, with v added. */
export function theoreticalSpeedup(point) {
  return expectedTokens(point) / roundCost(point);
}

/** The draft length from 0 (no draft) to `maxK` with the highest speedup; the smallest one if several are equally good. */
export function bestDraftLength(point, maxK) {
  let best = { k: 0, speedup: 1 };
  for (let k = 1; k <= maxK; k += 1) {
    const speedup = theoreticalSpeedup({ ...point, k });
    if (speedup > best.speedup) best = { k, speedup };
  }
  return best;
}

/** The acceptance rate at which the speedup is 1; null if it is below 1 even if all draft tokens are accepted. */
export function breakEvenAlpha(point) {
  if (theoreticalSpeedup({ ...point, alpha: 1 }) < 1) return null;
  let [low, high] = [0, 1]; // the speedup rises with the acceptance rate
  for (let step = 0; step < BISECTIONS; step += 1) {
    const middle = (low + high) / 2;
    if (theoreticalSpeedup({ ...point, alpha: middle }) < 1) low = middle;
    else high = middle;
  }
  return high;
}

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
