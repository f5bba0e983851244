// How far a speedup can be trusted: records/spread.py for a browser, with the same random numbers.

import { sum } from "../stage/charts.js";
import { BASELINE, SPECULATIVE } from "../stage/trace.js";
import { emitted, secondsOf } from "./figures.js";

export const RESAMPLES = 1000;
const TAIL = 0.025;
const UNEVEN = 0.15;
const MIN_PASSES = 8;
export const ROUGH = 0.3;

/** The 95 % interval of the speedup, the typical speedup, and whether other work disturbed the run; or null. */
export function spread(lanes, resamples = RESAMPLES) {
  const [drafting, alone] = [lanes[SPECULATIVE] ?? [], lanes[BASELINE] ?? []];
  if (![drafting, alone].every((rounds) => sum(rounds.map(secondsOf)) > 0)) return null;
  const measured = rate(drafting) / rate(alone);
  const typical = typicalRate(drafting) / typicalRate(alone);
  const dice = new Twister();
  const [fast, slow] = [rates(drafting, dice, resamples), rates(alone, dice, resamples)];
  const ratios = fast.map((one, index) => one / slow[index]).sort((one, other) => one - other);
  const cut = Math.trunc(TAIL * resamples);
  const uneven = measured / typical < 1 / (1 + UNEVEN) || measured / typical > 1 + UNEVEN;
  const disturbed = uneven || Math.max(largestScatter(drafting), largestScatter(alone)) > ROUGH;
  return { low: ratios[cut], high: ratios.at(-1 - cut), typical, disturbed };
}

const countOf = (rounds) => sum(rounds.map((round) => emitted(round).length));
const rate = (rounds) => countOf(rounds) / sum(rounds.map(secondsOf));

function rates(rounds, dice, resamples) {
  const size = Math.max(1, roundHalfEven(Math.sqrt(rounds.length)));
  const circle = [...rounds, ...rounds.slice(0, size - 1)];
  const tokens = accumulated(circle.map((round) => emitted(round).length));
  const seconds = accumulated(circle.map(secondsOf));
  return Array.from({ length: resamples }, () => {
    let [drawn, time] = [0, 0];
    for (let block = Math.ceil(rounds.length / size); block > 0; block -= 1) {
      const start = Math.floor(dice.random() * rounds.length);
      drawn += tokens[start + size] - tokens[start];
      time += seconds[start + size] - seconds[start];
    }
    return drawn / Math.max(1e-12, time);
  });
}

function accumulated(numbers) {
  const sums = [0];
  for (const number of numbers) sums.push(sums.at(-1) + number);
  return sums;
}

function roundHalfEven(number) {
  const below = Math.floor(number);
  return number - below === 0.5 ? below + (below % 2) : Math.round(number);
}

function typicalRate(rounds) {
  const times = new Map();
  for (const round of rounds) {
    const parts = { [`draft ${round.draft_steps}`]: round.draft_s, [`verify ${round.drafted.length}`]: round.verify_s, other: round.other_s };
    for (const [kind, seconds] of Object.entries(parts)) times.set(kind, [...(times.get(kind) ?? []), seconds]);
  }
  const total = sum([...times.values()].map((group) => group.length * quantile(group, 0.5)));
  return countOf(rounds) / Math.max(1e-12, total);
}

function largestScatter(rounds) {
  const kinds = new Map();
  for (const { drafted, verify_s: seconds } of rounds) kinds.set(drafted.length, [...(kinds.get(drafted.length) ?? []), seconds]);
  const times = [...kinds.values()].reduce((most, group) => (group.length > most.length ? group : most));
  return times.length >= MIN_PASSES ? scatter(times) : 0;
}

/** The interquartile range of repeated measurements ÷ their median. */
export function scatter(seconds) {
  if (seconds.length < 3) return 0;
  const middle = quantile(seconds, 0.5);
  return middle ? (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / middle : 0;
}

/** The value below which the `share` of the numbers lies, between two of them interpolated. */
export function quantile(numbers, share) {
  const sorted = [...numbers].sort((one, other) => one - other);
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  return sorted[below] + (place - below) * ((sorted[below + 1] ?? 0) - sorted[below] || 0);
}

// Python's random numbers from the seed 0: the Mersenne Twister (Matsumoto & Nishimura 1998).
class Twister {
  constructor() {
    const state = (this.state = new Uint32Array(624));
    const mixed = (index, factor) => Math.imul(state[index - 1] ^ (state[index - 1] >>> 30), factor);
    state[0] = 19650218;
    for (let index = 1; index < 624; index += 1) state[index] = Math.imul(state[index - 1] ^ (state[index - 1] >>> 30), 1812433253) + index;
    let index = 1;
    const turn = (change) => {
      change(index);
      index += 1;
      if (index === 624) [state[0], index] = [state[623], 1];
    };
    for (let step = 0; step < 624; step += 1) turn((at) => (state[at] ^= mixed(at, 1664525)));
    for (let step = 0; step < 623; step += 1) turn((at) => (state[at] = (state[at] ^ mixed(at, 1566083941)) - at));
    state[0] = 0x80000000;
    this.at = 624;
  }

  next() {
    const { state } = this;
    if (this.at === 624) {
      for (let index = 0; index < 624; index += 1) {
        const both = (state[index] & 0x80000000) | (state[(index + 1) % 624] & 0x7fffffff);
        state[index] = state[(index + 397) % 624] ^ (both >>> 1) ^ (both & 1 ? 0x9908b0df : 0);
      }
      this.at = 0;
    }
    let bits = state[this.at++];
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    return (bits ^ (bits >>> 18)) >>> 0;
  }

  random() {
    const [high, low] = [this.next() >>> 5, this.next() >>> 6];
    return (high * 67108864 + low) / 9007199254740992;
  }
}
