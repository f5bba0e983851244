"""How many replicas a number of visitors needs: the page's queue played with random visitors, and by formula.

One group of equal devices, first come, first served, as ``service.queue`` has it. Left out: shares of one
visitor, who stops or leaves, pairs that share the bound on who waits, replicas that are still being started.
"""

import argparse
import heapq
import math
import random
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from specdemo.records.limits import UserError
from specdemo.service.queue import Bounds

PLAYED = 20_000
"""Visitors that a simulation lets come, all at the rate of the hour in question."""
MOST_TURNED_AWAY, MOST_WAIT_S = 0.01, 30.0
"""What is good enough: fewer are turned away, and 95% of those served wait less, in seconds."""
LIKELY = 0.95
MOST = 1024
"""Replicas that are tried at most."""


class JobTime(NamedTuple):
    """Some of the jobs: how long each holds a device, and their part of all jobs (of the parts' sum)."""

    seconds: float
    part: float


RUNS = tuple(JobTime(seconds + 0.32, 0.18) for seconds in (2.00, 2.29, 2.49, 2.64, 3.01))
"""Runs of the embedded pair, 64 tokens in both lanes: least, quartiles and most of 48 prompts on the slowest
processor measured (``zen3-drafters.json``), with the longest prefill of both lanes in a recorded run."""
MIXED = (*RUNS, JobTime(10, 0.04), JobTime(40, 0.03), JobTime(70, 0.02), JobTime(100, 0.01))
"""Nine runs of ten jobs, with turns of a game, quiz, proof and lab at ``service.reservations.SECONDS``. Those
seconds were never measured, nor were the parts."""


@dataclass(frozen=True)
class Demand:
    """What visitors ask for in the busiest hour, as if it never ended.

    Attributes:
        visitors: A day.
        jobs_each: Jobs of one visitor, one after the other, whether or not the last was turned away.
        times: How long jobs take.
        peak_share: Of the day's visitors, how many come in that hour; from 0 to 1.
        pause_s: Seconds from the end of a job to the same visitor's next one, in the mean.
        exponential: Whether times are drawn from the exponential distribution with the mean of ``times``, as
            the formulas want them, instead of from ``times``.

    Raises:
        UserError: Something is out of bounds.
    """

    visitors: float
    jobs_each: int = 3
    times: Sequence[JobTime] = MIXED
    peak_share: float = 0.15
    pause_s: float = 60.0
    exponential: bool = False

    def __post_init__(self) -> None:
        times_fit = self.times and all(0 < value < math.inf for time in self.times for value in time)
        if not (times_fit and 0 < self.visitors < math.inf and 0 < self.peak_share <= 1):
            raise UserError("Visitors, seconds and parts must be above 0, and the peak's share up to 1.")
        if self.jobs_each < 1 or not 0 <= self.pause_s < math.inf:
            raise UserError("A visitor has one job or more, and a pause of 0 s or more.")

    @property
    def visitors_per_s(self) -> float:
        """Visitors that come in a second of the busiest hour."""
        return self.visitors * self.peak_share / 3600

    @property
    def mean_s(self) -> float:
        """How long a job takes in the mean, in seconds."""
        return sum(time.seconds * time.part for time in self.times) / sum(time.part for time in self.times)

    @property
    def load(self) -> float:
        """Offered load in Erlangs: devices that would be busy in the mean if nobody were turned away."""
        return self.visitors_per_s * self.jobs_each * self.mean_s


@dataclass(frozen=True)
class Figures:
    """What visitors meet.

    Attributes:
        turned_away: Share of all jobs that find the queue full.
        median_s, likely_s: Seconds that half and 95% of the jobs served wait at most.
        utilisation: Share of the devices' time that they compute.
        arrived, served, refused: Jobs that were counted; 0 where a formula gave the rest.
    """

    turned_away: float
    median_s: float
    likely_s: float
    utilisation: float
    arrived: int = 0
    served: int = 0
    refused: int = 0

    @property
    def good(self) -> bool:
        """Whether few enough are turned away, and the others wait briefly enough."""
        return self.turned_away < MOST_TURNED_AWAY and self.likely_s < MOST_WAIT_S


class Line:
    """The queue's rules for jobs whose lengths are known: when each begins, or that there is no place.

    Args:
        replicas: Equal devices, one or more.
        most_waiting: Jobs that wait at most.
    """

    def __init__(self, replicas: int, most_waiting: int):
        self._most_waiting = most_waiting
        self._free_at = [0.0] * replicas
        self._begin_at: deque[float] = deque()

    def wait_s(self, now: float, seconds: float) -> float | None:
        """Seconds until a job that comes now begins; None where it is turned away.

        Args:
            now: In seconds, not before the last job's.
            seconds: How long it will take.
        """
        while self._begin_at and self._begin_at[0] <= now:
            self._begin_at.popleft()
        begin = max(now, self._free_at[0])
        if begin > now:
            if len(self._begin_at) >= self._most_waiting:
                return None
            self._begin_at.append(begin)
        heapq.heapreplace(self._free_at, begin + seconds)
        return begin - now


Way = Callable[[Demand, int, int], Figures]
"""Tells figures from demand, replicas and how many may wait: :func:`simulated` or :func:`by_formula`."""


def simulated(
    demand: Demand, replicas: int, most_waiting: int, played: int = PLAYED, seed: int = 0
) -> Figures:
    """Let visitors come at random times to empty devices, and count from a tenth of them to the last one.

    Args:
        demand: What they want.
        replicas, most_waiting: Of the queue.
        played: How many visitors come, two or more.
        seed: The same one brings the same visitors with the same jobs, however many replicas there are.
    """
    line, waits, worked_s = Line(replicas, most_waiting), [], 0.0
    visitors = _visitors(demand, played, random.Random(seed))
    first, newest, since, now, arrived, refused = played // 10, -1, 0.0, 0.0, 0, 0
    coming = [next(visitors)]
    while newest < played - 1:
        now, number, done, jobs = heapq.heappop(coming)
        if done == 0:
            newest, since = number, now if number == first else since
            if (visitor := next(visitors, None)) is not None:
                heapq.heappush(coming, visitor)
        (seconds, pause_s), counted = jobs[done], newest >= first
        wait = line.wait_s(now, seconds)
        arrived += counted
        if wait is None:
            refused += counted
        elif counted:
            waits.append(wait)
            worked_s += seconds
        if done + 1 < len(jobs):
            again = now + pause_s + (0 if wait is None else wait + seconds)
            heapq.heappush(coming, (again, number, done + 1, jobs))
    waits = sorted(waits) or [math.inf]
    median_s, likely_s = (waits[math.ceil(share * len(waits)) - 1] for share in (0.5, LIKELY))
    used = worked_s / (replicas * (now - since))
    return Figures(refused / arrived, median_s, likely_s, used, arrived, arrived - refused, refused)


Visit = tuple[float, int, int, list[tuple[float, float]]]
"""When it comes, the visitor's number, jobs done before, then each job's seconds and the pause behind it."""


def _visitors(demand: Demand, played: int, chance: random.Random) -> Iterator[Visit]:
    seconds, parts = zip(*demand.times, strict=True)
    now = 0.0
    for number in range(played):
        now += chance.expovariate(demand.visitors_per_s)
        times = chance.choices(seconds, parts, k=demand.jobs_each)
        if demand.exponential:
            times = [chance.expovariate(1 / demand.mean_s) for _ in times]
        yield now, number, 0, [(time, chance.expovariate(1) * demand.pause_s) for time in times]


def by_formula(demand: Demand, replicas: int, most_waiting: int) -> Figures:
    """The queue M/M/N/K, K = N + ``most_waiting``: exact where times are exponential and jobs independent.

    Where nobody may wait it is Erlang's loss formula (B), which holds for jobs of all lengths; where any
    number may, Erlang's waiting formula (C).

    Args:
        demand: Of which load and mean time count alone.
        replicas, most_waiting: Of the queue.
    """
    each, inverse_b = demand.load / replicas, 1.0
    for number in range(1, replicas + 1):
        inverse_b = 1 + inverse_b * number / demand.load
    # Weights of N + j jobs there; the heaviest is 1, so that none overflows.
    top = most_waiting if each > 1 else 0
    weights = [each ** (waiting - top) for waiting in range(most_waiting + 1)]
    total = (inverse_b - 1) * each**-top + sum(weights)
    turned_away = weights[-1] / total
    found = [weight / total / (1 - turned_away) for weight in weights[:-1]]
    or_more = list(accumulate(reversed(found)))[::-1]

    def waits_longer(seconds: float) -> float:
        """Who finds N + j jobs waits for j + 1 of them to end."""
        ends = seconds * replicas / demand.mean_s
        return sum(share * _poisson(ends, ended) for ended, share in enumerate(or_more))

    median_s, likely_s = (_where(waits_longer, 1 - share) for share in (0.5, LIKELY))
    return Figures(turned_away, median_s, likely_s, each * (1 - turned_away))


def _poisson(mean: float, number: int) -> float:
    """Chance of ``number`` events where ``mean`` are expected."""
    if mean == 0:
        return float(number == 0)
    return math.exp(number * math.log(mean) - mean - math.lgamma(number + 1))


def _where(falling: Callable[[float], float], level: float) -> float:
    """The least value from 0 on at which a falling function is at ``level`` or below."""
    if falling(0.0) <= level:
        return 0.0
    low, high = 0.0, 1.0
    while falling(high) > level:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > level else (low, middle)
    return high


def needed(
    demand: Demand, most_waiting: int = Bounds.most_waiting, most: int = MOST, way: Way = simulated
) -> int:
    """The fewest replicas that are good enough (``Figures.good``).

    Args:
        demand: What visitors want.
        most_waiting: Jobs that wait at most.
        most: Replicas that are tried at most.
        way: How their figures are found.

    Raises:
        UserError: Not even ``most`` are enough.
    """
    tried = range(1, most + 1)
    found = bisect_left(tried, True, key=lambda replicas: way(demand, replicas, most_waiting).good)
    if found == len(tried):
        raise UserError(f"Not even {most} replicas are enough for {demand.load:.1f} Erlangs.")
    return tried[found]


def day(peak_share: float) -> list[float]:
    """Shares of a day's visitors for its 24 hours: one smooth hill (assumed), the busiest as given.

    Raises:
        UserError: It is no share that the busiest of 24 hours can have.
    """
    if not 1 / 24 <= peak_share <= 0.9:
        raise UserError("The busiest hour has from 1/24 to 0.9 of a day's visitors.")

    def shares(steepness: float) -> list[float]:
        weights = [math.exp(steepness * (math.cos(math.tau * hour / 24) - 1)) for hour in range(24)]
        return [weight / sum(weights) for weight in weights]

    return shares(_where(lambda steepness: -max(shares(steepness)), -peak_share))


def device_hours(demand: Demand, most_waiting: int = Bounds.most_waiting, way: Way = simulated) -> int:
    """Device-hours of a day where each hour has just as many replicas as it needs, the least being one.

    Raises:
        UserError: As :func:`needed` and :func:`day`.
    """
    hours, total, most = Counter(round(share, 9) for share in day(demand.peak_share)), 0, MOST
    for share, times in sorted(hours.items(), reverse=True):
        most = needed(replace(demand, peak_share=share), most_waiting, most, way)
        total += times * most
    return total


def _times(text: str) -> tuple[JobTime, ...]:
    """``2.8:0.9,40:0.1``: seconds and their parts, each part 1 where it is left out."""
    pairs = [part.partition(":") for part in text.split(",")]
    return tuple(JobTime(float(seconds), float(part or 1)) for seconds, _, part in pairs)


def _line(name: object, figures: Figures) -> str:
    waits = f"{figures.median_s:9.1f} {figures.likely_s:9.1f}"
    return f"{name!s:>22} {figures.turned_away:11.2%} {waits} {figures.utilisation:11.0%}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table around the number of replicas that is needed."""
    parser = argparse.ArgumentParser(prog="specdemo.cluster.capacity", description="Replicas for a page.")
    parser.add_argument("--visitors", type=float, default=1000, help="a day (default: 1000)")
    parser.add_argument("--jobs", type=int, default=3, help="of each visitor (default: 3)")
    parser.add_argument(
        "--seconds", type=_times, default=MIXED, help="of the jobs, with their parts: 3:9,40:1"
    )
    parser.add_argument("--peak-share", type=float, default=0.15, help="of the busiest hour (default: 0.15)")
    parser.add_argument("--max-waiting", type=int, default=Bounds.most_waiting, help="as on the page")
    parser.add_argument("--by-hour", action="store_true", help="add up what each hour of the day needs")
    options = parser.parse_args(arguments)
    try:
        demand = Demand(options.visitors, options.jobs, options.seconds, options.peak_share)
        _print(demand, Bounds(options.max_waiting).most_waiting, options.by_hour)
    except UserError as error:
        parser.error(str(error))


def _print(demand: Demand, most_waiting: int, by_hour: bool) -> None:
    replicas = needed(demand, most_waiting)
    print(f"{demand.load:.2f} Erlangs at the peak, {demand.mean_s:.2f} s a job")
    print(f"needed: {needed(demand, most_waiting, way=by_formula)} by formula, {replicas} simulated")
    print(f"{'replicas':>22} {'turned away':>11} {'median s':>9} {'95% s':>9} {'utilisation':>11}")
    for number in range(max(1, replicas - 2), replicas + 2):
        print(_line(f"{number} by formula", by_formula(demand, number, most_waiting)))
        exponential = replace(demand, exponential=True)
        print(_line("exponential, simulated", simulated(exponential, number, most_waiting)))
        print(_line("simulated", simulated(demand, number, most_waiting)))
    if by_hour:
        hours = device_hours(demand, most_waiting)
        print(f"device-hours a day: {24 * replicas} as at the peak, {hours} hour by hour")


if __name__ == "__main__":
    main()
