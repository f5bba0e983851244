"""Progress of jobs of each kind, from the events of whole jobs."""

import pytest
from helpers.tiny import tiny_pair

from specdemo.service.jobs import JobKind, checked, perform, progress_of

pytestmark = pytest.mark.usefixtures("one_thread")
RUN = {"prompt": "ab", "mode": "raw", "max_new_tokens": 24}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(noise=0.3)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (JobKind.RUN, RUN),
        (JobKind.RUN, RUN | {"draft_alone": True, "baseline": False}),
        (JobKind.RUN, RUN | {"repeats": 2}),
        (JobKind.PROVE, {"proof": "greedy", "prompts": 2}),
        (JobKind.PROVE, {"proof": "distribution", "draws": 30}),
        (JobKind.MEASURE, {"experiment": "draft-length", "prompts": 1, "max_new_tokens": 8}),
        (JobKind.QUIZ, {"question": 2}),
        (JobKind.CLASS, {"text": "ab", "drafts": ["c", "d"]}),
    ],
)
def test_the_events_of_a_job_add_up_to_its_whole_work(pair, kind, raw):
    request = checked(kind, raw)
    progress = progress_of(request, "tiny")
    progress.begin(0)
    for second, event in enumerate(perform(pair, request, lambda: False)):
        progress.add(event, second)
    assert progress.done == progress.amount and progress.left_s(second) == pytest.approx(0)
