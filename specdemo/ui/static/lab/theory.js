// The theory of speculative decoding, as in records/theory.py. A point has the acceptance rate `alpha`, the draft length
// `k`, the cost ratio `c` and the `growth` of the verification cost: v(n) = 1 + growth · (n − 1). The unit of all costs is
// a target pass over one token.

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
