"""The process between the page and the cluster: it alone imports Ray, starts the replicas and asks them.

A process of its own because Ray ends the process it is in when the cluster's head is gone; the page's must
not end with it. Started by ``link``, it ends when the page's end of the connection closes or when the cluster
does not answer any more, and takes its replicas with it.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
if (Path.home() / ".ray" / "auth_token").is_file():
    # ``ray start`` asks for a token where there is one; who joins has to be told to bring it.
    os.environ.setdefault("RAY_AUTH_MODE", "token")

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.schema import ApplicationStatus, ReplicaState

from specdemo.cluster.messages import Begin, Ended, Lost, Restart, Standing, Stop, Told
from specdemo.cluster.plan import AUTO, Bounds, Plan
from specdemo.cluster.replica import Replica, Wishes

NAMESPACE = "specdemo"
POLL_S = 1.0
SILENT_S = 20.0
"""A cluster that has not answered for so long is taken for gone, or for one that never was there."""
LEAVE_S = 10.0
"""What this process may take to end in order once the page has gone."""
GONE = 3
"""The exit status then."""
GRACE_S = 20.0
"""Added to the longest job: what a replica that is to end may still take."""
_log = logging.getLogger(__name__)


class Driver:
    """Deploys a plan and passes on its jobs.

    Args:
        plan: What to deploy.
        connection: To the page.
    """

    def __init__(self, plan: Plan, connection: Connection):
        self._plan = plan
        self._connection = connection
        self._sending = threading.Lock()
        self._heard: SimpleQueue[Any] = SimpleQueue()
        self._begun: dict[int, asyncio.Task[None]] = {}
        self._telling: set[int] = set()
        self._answered = time.monotonic()

    def run(self) -> None:
        """Deploy, and pass on jobs until the page has gone."""
        for task in (self._watch, self._listen):
            threading.Thread(target=task, daemon=True).start()
        connect(self._plan.address)
        serve.start(http_options={"location": "NoServer"})  # pyright: ignore[reportArgumentType]
        self._wishes = ray.remote(num_cpus=0)(Wishes).remote()
        self._deploy()
        try:
            asyncio.run(self._pass_on())
        finally:
            for name in self._plan.replicas:
                serve.delete(_application(name), _blocking=False)

    def _deploy(self) -> None:
        cpus = cpus_each(self._plan)
        targets = [
            serve.RunTarget(
                target=_deployment(bounds, cpus, self._plan).bind(
                    self._plan.sources[name], self._plan.remeasure, time.time_ns()
                ),
                name=_application(name),
                route_prefix=None,
            )
            for name, bounds in self._plan.replicas.items()
        ]
        serve.run_many(targets, wait_for_applications_running=False)
        self._handles = {
            name: serve.get_deployment_handle(DEPLOYMENT, _application(name)).options(stream=True)
            for name in self._plan.replicas
        }

    async def _pass_on(self) -> None:
        standing = asyncio.ensure_future(self._tell_standing())
        while (message := await asyncio.to_thread(self._heard.get)) is not None:
            self._take(message)
        standing.cancel()

    def _listen(self) -> None:
        """Hear the page out, from before there is a cluster to the end, which is this process's end too."""
        with suppress(EOFError, OSError):
            while True:
                self._heard.put(self._connection.recv())
        self._heard.put(None)
        time.sleep(LEAVE_S)
        os._exit(0)

    def _take(self, message: Any) -> None:
        match message:
            case Begin():
                self._begun[message.number] = asyncio.ensure_future(self._do(message))
            case Stop(number):
                self._stop(number)
            case Restart():
                self._deploy()

    def _stop(self, number: int) -> None:
        if number in self._telling:
            self._wishes.stop.remote(number)
        elif task := self._begun.get(number):
            task.cancel()  # no replica has it yet

    async def _do(self, begin: Begin) -> None:
        number = begin.number
        try:
            events = self._handles[begin.pair].job.remote(begin.request, self._wishes, number)
            async for some in events:  # pyright: ignore[reportGeneralTypeIssues]
                self._telling.add(number)
                self._send(Told(number, some))
            self._send(Ended(number))
        except asyncio.CancelledError:
            self._send(Ended(number))
        except RayError as error:
            _log.warning("A job was lost: %s", error)
            self._send(Lost(number))
        finally:
            self._wishes.forget.remote(number)
            self._telling.discard(number)
            del self._begun[number]

    def _send(self, message: Any) -> None:
        with self._sending, suppress(OSError):  # the page has gone; whoever listens to it finds out
            self._connection.send(message)

    async def _tell_standing(self) -> None:
        told = None
        while True:
            standing = await asyncio.to_thread(self._standing)
            self._answered = time.monotonic()
            if standing != told:
                self._send(standing)
                told = standing
            await asyncio.sleep(POLL_S)

    def _standing(self) -> Standing:
        applications = serve.status().applications
        running, trouble = {}, ""
        for name in self._plan.replicas:
            found = applications.get(_application(name))
            deployment = found and found.deployments.get(DEPLOYMENT)
            running[name] = deployment.replica_states.get(ReplicaState.RUNNING, 0) if deployment else 0
            if found and found.status in (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY):
                trouble = (deployment.message if deployment else "") or found.message
        return Standing(running, trouble)

    def _watch(self) -> None:
        """End this process when the cluster is silent: a call to it may hang for minutes."""
        while time.monotonic() - self._answered < SILENT_S:
            time.sleep(POLL_S)
        os._exit(GONE)


DEPLOYMENT = "Replica"


def connect(address: str) -> None:
    """Join the cluster, or with ``auto`` start one on this machine where none runs."""
    if address == AUTO:
        ray.init(namespace=NAMESPACE, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address, namespace=NAMESPACE, log_to_driver=False)


def cpus_each(plan: Plan) -> float:
    """How many cores a replica gets: as many as were asked for, or an even share of what the cluster has."""
    if plan.cpus is not None:
        return plan.cpus
    return max(1.0, ray.cluster_resources().get("CPU", 1.0) // plan.most)


def _application(pair: str) -> str:
    return f"specdemo-{pair}"


def _deployment(bounds: Bounds, cpus: float, plan: Plan) -> Any:
    """The replicas of one pair as Serve wants them described."""
    scaling: dict[str, Any] = {"num_replicas": bounds.least}
    if not bounds.fixed:
        scaling = {
            "autoscaling_config": {
                "min_replicas": bounds.least,
                "max_replicas": bounds.most,
                "target_ongoing_requests": 1,
                "metrics_interval_s": 1,
                "look_back_period_s": 5,
                "upscale_delay_s": 5,
                "downscale_delay_s": 300,
            }
        }
    return serve.deployment(
        name=DEPLOYMENT,
        max_ongoing_requests=1,
        ray_actor_options={"num_cpus": cpus, "num_gpus": plan.gpus},
        graceful_shutdown_timeout_s=plan.most_seconds + GRACE_S,
        health_check_period_s=5,
        **scaling,
    )(Replica)


def main(descriptor: int) -> None:
    """Take the plan from the page's end of the connection, and carry it out."""
    connection = Connection(descriptor)
    Driver(connection.recv(), connection).run()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # Ray's threads would be waited for
