"""Pairs in memory: the default pair stays, others take turns, a failed load is reported and tried again."""

import threading
import weakref
from typing import Any

import pytest
from helpers.waiting import PATIENCE_S

from specdemo.engine.speculate import never
from specdemo.records.limits import UserError
from specdemo.service.pair_pool import IN_THE_LOG, PairPool, without_folders

DEFAULT = "default"


class Models:
    """A loader of stand-in pairs that records the names it loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, name: str, progress: Any) -> Any:
        progress(f"Loading {name}", 0.5)
        assert self.gate.wait(PATIENCE_S)
        if name in self.failing:
            raise self.failing.pop(name)
        self.loaded.append(name)
        return (name, len(self.loaded))


@pytest.fixture
def models() -> Models:
    return Models()


@pytest.fixture
def pool(models: Models) -> PairPool:
    return PairPool(models, DEFAULT)


def finished(waiting: Any) -> Any:
    """The pair that a visitor waits for."""
    while True:
        try:
            next(waiting)
        except StopIteration as over:
            return over.value


def borrow(pool: PairPool, name: str, stop: Any = never) -> Any:
    return finished(pool.borrow(name, stop))


def visit(pool: PairPool, name: str) -> Any:
    """Borrow and give back."""
    pair = borrow(pool, name)
    pool.give_back(name)
    return pair


def texts(waiting: Any, count: int) -> list[str]:
    return [next(waiting)["text"] for _ in range(count)]


def test_the_default_pair_stays_and_a_guest_stays_until_another_is_asked_for(pool, models):
    pool.begin()
    first = borrow(pool, DEFAULT)
    guest = visit(pool, "a")
    assert borrow(pool, "a") is guest and borrow(pool, DEFAULT) is first
    assert models.loaded == [DEFAULT, "a"]


def test_progress_is_shown_while_loading(pool, models):
    models.gate.clear()
    waiting = pool.borrow(DEFAULT, never)
    assert texts(waiting, 2)[-1] == f"Loading {DEFAULT}"
    models.gate.set()
    assert finished(waiting)


def test_another_guest_waits_until_nobody_uses_the_first(pool, models):
    borrow(pool, "a")
    waiting = pool.borrow("b", never)
    assert "Waiting: other visitors are using a different pair" in texts(waiting, 2)
    assert models.loaded == ["a"]
    pool.give_back("a")
    assert finished(waiting)[0] == "b" and models.loaded == ["a", "b"]


def test_guests_are_served_in_order_of_arrival_even_if_a_later_one_is_there(pool, models):
    using = borrow(pool, "a")
    other = pool.borrow("b", never)
    next(other)
    again = pool.borrow("a", never)
    assert texts(again, 1) == ["Waiting: other visitors are using a different pair"]
    assert borrow(pool, DEFAULT), "the default pair never has to wait"
    other.close()
    assert finished(again) is using


def test_stop_ends_waiting_and_leaves_no_user_behind(pool, models):
    borrow(pool, "a")
    assert borrow(pool, "b", lambda: True) is None
    pool.give_back("a")
    models.gate.clear()
    assert borrow(pool, "b", lambda: True) is None
    models.gate.set()
    assert borrow(pool, "c")[0] == "c"


def test_a_guest_that_is_still_being_loaded_is_not_replaced(pool, models):
    models.gate.clear()
    gone = pool.borrow("a", never)
    next(gone)
    gone.close()
    waiting = pool.borrow("b", never)
    next(waiting)
    models.gate.set()
    assert finished(waiting)[0] == "b" and models.loaded == ["a", "b"]


class Panic(BaseException):
    """The kind of error that libraries in other languages raise."""


ERRORS = [
    (UserError("It is not there; name another."), "It is not there; name another."),
    (UserError("The disk of /srv/models is full; make 500 MB free there."), IN_THE_LOG),
    (ZeroDivisionError("of all\nthings"), "could not be loaded (ZeroDivisionError: of all)."),
    (Panic("of all\nthings"), "could not be loaded (Panic: of all)."),
]


@pytest.mark.parametrize("name", [DEFAULT, "a"])
@pytest.mark.parametrize(("error", "sentence"), ERRORS)
def test_a_failed_load_is_reported_and_tried_again(pool, models, caplog, name, error, sentence):
    models.failing = {name: error}
    with pytest.raises(UserError) as raised:
        borrow(pool, name)
    assert sentence in str(raised.value) and (sentence != IN_THE_LOG or str(error) in caplog.text)
    assert visit(pool, name)[0] == name
    assert borrow(pool, "b"), "nobody still uses the first guest"


@pytest.mark.parametrize(
    ("sentence", "hidden"),
    [
        ("Cannot load ../own: no weights (~/own/model.safetensors).", True),
        ("Fetching a/b failed ([Errno 13] Permission denied: '/root/.cache/x'); try again.", True),
        ("Cannot load org/name: the hub has none of that name, or it is private; check the name.", False),
        ("org/name is gated: accept its licence at https://huggingface.co/org/name and log in.", False),
        ("It writes 5 tokens/s; choose another.", False),
    ],
)
def test_sentences_that_name_a_folder_are_hidden(sentence, hidden):
    assert (without_folders(sentence) == IN_THE_LOG) is hidden


def test_a_failed_load_keeps_only_its_sentence():
    kept: list[Any] = []

    def loader(name: str, progress: Any) -> Any:
        weights = Models()
        kept.append(weakref.ref(weights))
        raise UserError("They do not fit; choose others.")

    with pytest.raises(UserError, match="choose others"):
        borrow(PairPool(loader, DEFAULT), DEFAULT)
    assert kept[0]() is None


def test_after_a_device_is_lost_all_its_pairs_are_loaded_again(pool, models):
    first, guest = borrow(pool, DEFAULT), visit(pool, "guest")
    pool.forget(first)
    second = borrow(pool, DEFAULT)
    assert second != first and borrow(pool, "guest") != guest
    pool.forget(first)
    assert borrow(pool, DEFAULT) is second


def test_a_visitor_who_waits_while_a_pair_is_lost_gets_the_new_one(pool, models):
    models.gate.clear()
    waiting = pool.borrow(DEFAULT, never)
    next(waiting)
    models.gate.set()
    first = borrow(pool, DEFAULT)
    models.gate.clear()
    pool.forget(first)
    assert len(texts(waiting, 3)) == 3
    models.gate.set()
    assert finished(waiting) != first
