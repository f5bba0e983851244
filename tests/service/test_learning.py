"""Learning while serving: the same text, and more draft tokens accepted."""

from collections import Counter
from dataclasses import replace

import pytest
from helpers.tiny import tiny_pair

from specdemo.lab.answers import learned_answer
from specdemo.records.drafter_kinds import N_GRAM
from specdemo.records.limits import UserError
from specdemo.records.trace import SPECULATIVE
from specdemo.service import hosting, jobs
from specdemo.service.hosting import Hosting, Learner
from specdemo.service.jobs import JobKind
from specdemo.service.offered_pairs import OfferedPairs

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
RUN = {"prompt": "abcabc", "mode": "raw", "drafter": N_GRAM, "k": 3, "max_new_tokens": 40}


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture
def pair(learner):
    return learner.pupil(tiny_pair())


def rounds(pair, **changes):
    """The speculative lane's rounds of one job."""
    request = jobs.checked(JobKind.RUN, RUN | changes)
    events = list(jobs.perform(pair, request, lambda: False))
    assert events[-1]["type"] == "end"
    return [event["round"] for event in events if event.get("lane") == SPECULATIVE]


def written(found):
    """The ids of a lane's text."""
    ids = []
    for round_ in found:
        ids += [token["id"] for token in round_["drafted"] if token["status"] == "accepted"]
        ids += [round_["emission"]["id"]] if round_["emission"] else []
    return ids


def test_a_second_run_is_drafted_from_the_first_and_writes_the_same(pair, learner):
    assert learner.visits == [] and learner.contexts == 0
    first, second = rounds(pair), rounds(pair)
    assert written(first) == written(second) == written(rounds(tiny_pair(), drafter="draft-model"))
    assert len(second) < len(first), "fewer passes of the target"
    before, after = learner.visits
    assert before.after == before.before == after.before == 0.0 and after.after > 0.9
    assert learner.contexts > 0


def test_the_table_learns_from_every_drafter_and_from_a_stopped_run(pair, learner):
    rounds(pair, drafter="draft-model")
    assert len(learner.visits) == 1
    request = jobs.checked(JobKind.RUN, RUN)
    asked = iter(range(100))
    list(jobs.perform(pair, request, lambda: next(asked) > 3))
    assert 0 < learner.visits[-1].tokens < learner.visits[0].tokens


def test_a_seed_used_again_gives_other_draws(pair):
    """Otherwise the table would know the draws of the second run, and the text would not be the target's."""
    asked = {
        "temperature": 1.0,
        "top_k": 3,
        "rule": "rejection",
        "max_new_tokens": 2,
        "k": 1,
        "baseline": False,
    }
    once, twice = Counter(), Counter()
    for seed in range(200):
        pupil = Learner().pupil(replace(pair, n_gram=None))
        for counts in (once, twice):
            counts[written(rounds(pupil, seed=seed, **asked))[0]] += 1
    assert len(once) == 3 and once.total() == twice.total() == 200
    apart = sum(abs(once[token] - twice[token]) for token in once | twice) / 400
    assert apart < 0.15, "total variation: 0.05 by chance, 0.24 with the same draws"


def test_a_pair_that_does_not_learn_gets_no_table():
    pair = tiny_pair()
    rounds(pair, drafter="draft-model")
    assert pair.n_gram is None


def test_a_pair_that_is_loaded_again_keeps_its_learned_table(pair, learner):
    rounds(pair)
    again = learner.pupil(tiny_pair())
    assert again.n_gram is pair.n_gram and learner.contexts > 0
    rounds(again)
    assert len(learner.visits) == 2


def test_a_host_may_have_the_pair_at_home_learn(monkeypatch, learner):
    guest = tiny_pair()
    monkeypatch.setattr(hosting, "load_sources", lambda sources, **options: tiny_pair())
    monkeypatch.setattr(hosting, "assemble_pair", lambda sources, **options: guest)
    host = Hosting(pair="gpt2-large", device="cpu", learner=learner)
    assert N_GRAM in host.drafters and N_GRAM not in Hosting(pair="gpt2-large", device="cpu").drafters
    service = host.service(OfferedPairs("gpt2-large", {"gpt2-large": "", "gpt2-xl": ""}))
    for name, visits in (("gpt2-large", 1), ("gpt2-xl", 1), ("gpt2-large", 2)):
        list(service.events(JobKind.RUN, RUN | {"drafter": "draft-model"}, lambda: False, name))
        assert len(learner.visits) == visits, "only the pair at home learns"


def test_a_gpu_lent_by_the_call_cannot_learn(monkeypatch, learner):
    monkeypatch.setattr(hosting, "ZERO_GPU", True)
    with pytest.raises(UserError, match="start without --learn"):
        Hosting(learner=learner).service(OfferedPairs())


def test_the_lab_shows_acceptance_before_and_after(pair, learner):
    nothing = learned_answer(learner.visits, learner.contexts)
    assert nothing["chart"] is None and nothing["after"] is None and "press Run" in nothing["sentence"]
    for _ in range(12):
        rounds(pair)
    answer = learned_answer(learner.visits, learner.contexts)
    assert answer["before"] == 0.0 and answer["after"] == pytest.approx(1.0, abs=0.1)
    assert "480 tokens of the latest 12 runs" in answer["sentence"]
    shipped, learned = answer["chart"]["light"]["data"]
    assert list(learned["x"]) == list(range(1, 13)) and learned["y"][0] == 0.0
    assert learned["y"][-1] == pytest.approx(answer["after"])
    assert set(shipped["y"]) == {0.0}
