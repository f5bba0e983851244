"""How long those in the queue are told that they will wait, learned from the jobs of each kind.

All times are seconds. Knows no threads.
"""

from specdemo.records.events import Event

USUAL_S = 15.0
"""What a kind of job is taken to need until one of them has been seen."""
NEWEST = 0.3
"""Weight of the newest job in what its kind usually needs."""


class UsualSeconds:
    """What jobs of each kind usually hold the device for."""

    def __init__(self) -> None:
        self._usual: dict[str, float] = {}

    def of(self, kind: str) -> float:
        """Seconds that a job of this kind is expected to take."""
        return self._usual.get(kind, USUAL_S)

    def learn(self, kind: str, took_s: float, whole: bool) -> None:
        """Take in how long a job took; of one that was ended early this is only the least it needs."""
        if whole or took_s > self.of(kind):
            self._usual[kind] = took_s + (1 - NEWEST) * (self._usual.get(kind, took_s) - took_s)


def rounded_seconds(seconds: float) -> int:
    """To five seconds, upwards: more would be false precision, and an update to send every moment."""
    return max(5, int(-(-seconds // 5) * 5))


def waiting_event(ahead: int, wait_s: int) -> Event:
    """The ``progress`` event of a job that waits behind ``ahead`` others, for about ``wait_s`` seconds."""
    others = "one visitor is" if ahead == 1 else f"{ahead} visitors are"
    return {
        "type": "progress",
        "text": f"In the queue: {others} before you, about {wait_s} s to wait",
        "fraction": 0.0,
        "ahead": ahead,
        "wait_s": wait_s,
    }
