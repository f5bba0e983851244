"""The process between the page and the cluster: it alone imports Ray, starts the replicas and asks them.

A process of its own because Ray ends the process it is in when the cluster's head is gone; the page's must
not end with it. Started by ``link``, it ends when the page's end of the connection closes or when the cluster
does not answer any more. In the first case it takes its replicas with it; else the next driver finds them.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import ray
from ray import serve
from ray.serve.schema import ApplicationStatus, ReplicaState
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from specdemo.cluster.messages import Begin, Ended, Lost, Restart, Standing, Stop, Told
from specdemo.cluster.plan import AUTO, Counts, Plan
from specdemo.cluster.replica import Replica, Wishes

NAMESPACE = "specdemo"
POLL_S = 1.0
"""How often the cluster is asked how it stands while replicas are missing."""
SETTLED_S = 5.0
"""And while all are there: what answers takes the processor from what computes."""
WATCH_S = 1.0
"""How often this process looks whether the cluster has been silent for too long."""
START_S = 300.0
"""A cluster that is not joined and deployed to within so long is taken for one that is not there."""
SILENT_S = 60.0
"""One that has not answered for so long is taken for gone; a busy machine may take half of that to answer."""
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
        self._redeploying: asyncio.Task[None] | None = None
        self._gone_at = time.monotonic() + START_S

    def run(self) -> None:
        """Deploy, and pass on jobs until the page has gone."""
        for task in (self._watch, self._listen):
            threading.Thread(target=task, daemon=True).start()
        connect(self._plan.address)
        # A supervisor may tell all of its processes to end; this one ends when the page has.
        for told in (signal.SIGTERM, signal.SIGINT):
            signal.signal(told, signal.SIG_IGN)
        serve.start(http_options={"location": "NoServer"})  # pyright: ignore[reportArgumentType]
        # Beside this process, so that it is not lost with another machine.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._wishes = ray.remote(Wishes).options(num_cpus=0, scheduling_strategy=here).remote()
        self._deploy()
        try:
            asyncio.run(self._pass_on())
        finally:
            for name in self._plan.replicas:
                serve.delete(self._application(name), _blocking=False)

    def _application(self, pair: str) -> str:
        """What Serve calls the replicas of a pair of this page."""
        return f"specdemo-{self._plan.page}-{pair}"

    def _deploy(self) -> None:
        cpus = cpus_each(self._plan)
        if lack := lacking(self._plan, cpus):
            _log.error("%s", lack)
        targets = [
            serve.RunTarget(
                target=_deployment(bounds, cpus, self._plan).bind(
                    self._plan.sources[name], self._plan.recalibrate, time.time_ns()
                ),
                name=self._application(name),
                route_prefix=None,
            )
            for name, bounds in self._plan.replicas.items()
        ]
        serve.run_many(targets, wait_for_applications_running=False)
        self._handles = {
            name: serve.get_deployment_handle(DEPLOYMENT, self._application(name)).options(stream=True)
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
                self._redeploying = asyncio.ensure_future(self._redeploy(self._redeploying))

    async def _redeploy(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        try:
            await asyncio.to_thread(self._deploy)
        except Exception:
            _log.exception("The replicas could not be started anew; those that are there stay.")

    def _stop(self, number: int) -> None:
        task = self._begun.get(number)
        if task is None:
            return
        self._wishes.stop.remote(number)
        if number not in self._telling:
            task.cancel()  # no replica has it, or one has only just got it, which finds the wish

    async def _do(self, begin: Begin) -> None:
        number = begin.number
        try:
            events = self._handles[begin.pair].job.remote(begin.request, self._wishes, number)
            async for some in events:  # pyright: ignore[reportGeneralTypeIssues]
                self._telling.add(number)
                self._send(Told(number, some))
            self._wishes.forget.remote(number)
            self._send(Ended(number))
        except asyncio.CancelledError:
            self._send(Ended(number))
        except Exception as error:  # whatever it is, somebody waits for this job
            _log.warning("A job was lost: %s", error)
            self._wishes.stop.remote(number)  # if its replica is there all the same
            self._send(Lost(number))
        finally:
            self._telling.discard(number)
            del self._begun[number]

    def _send(self, message: Any) -> None:
        with self._sending, suppress(OSError):  # the page has gone; whoever listens to it finds out
            self._connection.send(message)

    async def _tell_standing(self) -> None:
        told = None
        while True:
            try:
                standing = await asyncio.to_thread(self._standing)
            except Exception as error:  # for so long as the watchdog has patience
                _log.warning("The cluster could not be asked how it stands: %s", error)
            else:
                self._gone_at = time.monotonic() + SILENT_S
                if standing != told:
                    self._send(standing)
                    told = standing
            await asyncio.sleep(SETTLED_S if told and self._settled(told) else POLL_S)

    def _settled(self, standing: Standing) -> bool:
        """Whether there are as many replicas as there can be."""
        return all(standing.running.get(name) == bounds.most for name, bounds in self._plan.replicas.items())

    def _standing(self) -> Standing:
        ray.get(self._wishes.here.remote(), timeout=SILENT_S)
        applications = serve.status().applications
        running, trouble = {}, ""
        for name in self._plan.replicas:
            found = applications.get(self._application(name))
            deployment = found and found.deployments.get(DEPLOYMENT)
            running[name] = deployment.replica_states.get(ReplicaState.RUNNING, 0) if deployment else 0
            if found and found.status in (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY):
                trouble = (deployment.message if deployment else "") or found.message
        return Standing(running, trouble)

    def _watch(self) -> None:
        """End this process when the cluster is silent: a call to it may hang for minutes."""
        while time.monotonic() < self._gone_at:
            time.sleep(WATCH_S)
        os._exit(GONE)


DEPLOYMENT = "Replica"
ROUTING = {"initial_backoff_s": 0.005, "backoff_multiplier": 2, "max_backoff_s": 0.1}
"""A job is sent when a replica has told the end of the one before, and finds it busy with leaving that for a
moment; by default the next look is only after 25 ms, then 50."""


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


def lacking(plan: Plan, cpus: float) -> str:
    """What the cluster lacks for the replicas that have to be there, in a sentence; empty where nothing."""
    there = ray.cluster_resources()
    least = sum(bounds.least for bounds in plan.replicas.values())
    for name, each in (("CPU", cpus), ("GPU", plan.gpus)):
        if least * each > there.get(name, 0.0):
            return (
                f"{least} replicas with {each:g} {name}s each need more than the {there.get(name, 0.0):g} "
                "that the cluster has; ask for fewer, or give each less."
            )
    return ""


def _deployment(bounds: Counts, cpus: float, plan: Plan) -> Any:
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
        request_router_config=ROUTING,
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
