// How long a job will still take, from how far it has come. Pure; no DOM.

const LEAST_SHARE = 0.05; // less tells nothing yet
const COARSE_S = 20; // longer waits are told in steps of five seconds

/** Behind what is told of a job `elapsed` seconds after its beginning: ", about 12 s left"; "" while that cannot be told. */
export function timeLeft(fraction, elapsed) {
  if (fraction < LEAST_SHARE || fraction >= 1) return "";
  const seconds = (elapsed * (1 - fraction)) / fraction;
  const told = seconds > COARSE_S ? 5 * Math.round(seconds / 5) : Math.max(1, Math.round(seconds));
  return `, about ${told} s left`;
}
