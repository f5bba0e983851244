"""The driver with a cluster that a test controls. These tests are slow only because they need Ray."""

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.waiting import until

from specdemo.cluster.plan import Plan, ReplicaRange
from specdemo.cluster.service import JobEvents, JobMessage
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind, checked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray"),
]
REQUEST = checked(JobKind.RUN, {"prompt": "x"})
EVENTS = [{"type": "start"}]


def plan(replicas: int, device: str | None = None) -> Plan:
    return Plan("auto", {"built-in": ReplicaRange(replicas, replicas)}, {"built-in": Sources(device=device)})


@pytest.mark.parametrize("fault", [None, RuntimeError("of Ray"), OSError("of the system")])
def test_a_job_is_passed_on_to_its_end_or_its_loss(monkeypatch, caplog, fault):
    from specdemo.cluster.driver import Driver

    monkeypatch.setattr("specdemo.cluster.driver.POLL_S", 0.0)
    monkeypatch.setattr("specdemo.cluster.driver.Driver.deploy", lambda _driver: 1 / 0)

    def job(*_arguments: Any) -> Iterator[Any]:
        yield EVENTS
        if fault:
            raise fault

    stopped: list[int] = []
    stop_requests = SimpleNamespace(add=SimpleNamespace(remote=stopped.append))
    handles = {"built-in": SimpleNamespace(job=SimpleNamespace(remote=job))}
    page, theirs = Pipe()
    with ThreadPoolExecutor() as threads, page:  # the driver ends with the page
        threads.submit(Driver(plan(1), theirs).pass_on, handles, stop_requests)
        page.send(plan(2))  # a restart that fails keeps the replicas
        page.send(JobMessage(1, "built-in", REQUEST))
        assert [page.recv(), page.recv()] == [JobEvents(1, EVENTS), JobEvents(1, None if fault else [])]
        page.send(JobMessage(1, "built-in", None))
        until(lambda: stopped == [1])
    assert "the present ones stay" in caplog.text


@pytest.mark.parametrize(
    ("cluster", "replicas", "device", "expected"),
    [
        ({"CPU": 8.0}, 3, None, {"num_cpus": 2.0, "num_gpus": 0.0}),
        ({"CPU": 8.0, "GPU": 2.0}, 2, None, {"num_cpus": 4.0, "num_gpus": 1.0}),
        ({"CPU": 8.0, "GPU": 2.0}, 4, "cpu", {"num_cpus": 2.0, "num_gpus": 0.0}),
        ({"CPU": 2.0}, 4, None, "has 2 CPU cores, too few for 4 replicas"),
        ({"CPU": 8.0, "GPU": 2.0}, 3, None, "has 2 GPUs, too few for 3 replicas"),
    ],
)
def test_each_replica_has_an_even_share_of_the_cores_and_a_gpu_if_there_is_one(
    monkeypatch, cluster, replicas, device, expected
):
    from specdemo.cluster.driver import replica_resources

    monkeypatch.setattr("specdemo.cluster.driver.ray.cluster_resources", lambda: cluster)
    if isinstance(expected, dict):
        assert replica_resources(plan(replicas, device)) == expected
    else:
        with pytest.raises(UserError, match=expected):
            replica_resources(plan(replicas, device))


@pytest.mark.parametrize("name", ["device", "threads", "processor_flags", "precision"])
def test_the_timings_of_a_table_come_from_equal_devices(name):
    from specdemo.cluster.replica_group import shared_facts

    facts = {"device": "A", "processor_flags": ["avx2"], "precision": "fp32", "threads": 1, "date": "1"}
    assert shared_facts([facts, {**facts, "date": "2"}]) == {**facts, "replicas": 2}
    with pytest.raises(UserError, match=f"differ in {name.replace('_', ' ')}.*identical machines"):
        shared_facts([facts, {**facts, name: "B"}])
