"""The process between the page and the cluster: it starts the replicas with Ray Serve and passes jobs on.

Ray ends the process it is in when the cluster's head is lost (seen with Ray 2.60), and the page must survive
that. So only this process imports Ray, and ``link`` starts it again when it has ended.
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

from specdemo.cluster.link import (
    ClusterStatus,
    JobEnded,
    JobEvents,
    JobLost,
    RestartReplicas,
    StartJob,
    StopJob,
)
from specdemo.cluster.plan import AUTO, Plan, ReplicaRange
from specdemo.cluster.replica import Replica, StopRequests

NAMESPACE = "specdemo"
DEPLOYMENT = "Replica"
POLL_S, IDLE_POLL_S = 1.0, 5.0
"""The time between two looks at the cluster's status: with replicas missing, and with all there."""
START_S = 300.0
"""The longest time to join the cluster and deploy."""
SILENT_S = 60.0
"""The longest silence of a cluster; a busy machine may take half of that to answer."""
LEAVE_S = 10.0
"""The time this process gets to end in order once the page has gone."""
CLUSTER_GONE = 3
"""The exit status if the cluster does not answer."""
GRACE_S = 20.0
"""Added to the longest job: the time that a replica gets to end."""
_log = logging.getLogger(__name__)


class Driver:
    """Deploys a plan and passes on its jobs.

    It ends when the page closes the connection, and takes its replicas with it. It also ends when the cluster
    does not answer; the next driver then finds the replicas, if they are still there.

    Args:
        plan: The replicas to deploy.
        connection: To the page.
    """

    def __init__(self, plan: Plan, connection: Connection):
        self._plan = plan
        self._connection = connection
        self._sending = threading.Lock()
        self._messages: SimpleQueue[Any] = SimpleQueue()
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._with_replica: set[int] = set()
        self._redeploying: asyncio.Task[None] | None = None
        self._deadline = time.monotonic() + START_S

    def run(self) -> None:
        """Deploy, and pass on jobs until the page has gone."""
        for task in (self._end_with_cluster, self._receive):
            threading.Thread(target=task, daemon=True).start()
        connect(self._plan.address)
        # A supervisor may signal all its processes; this one ends after the page.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        serve.start(http_options={"location": "NoServer"})  # pyright: ignore[reportArgumentType]
        # On this machine, so that it is not lost with another one.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        stop_requests = ray.remote(StopRequests).options(num_cpus=0, scheduling_strategy=here).remote()
        handles = self.deploy()
        try:
            asyncio.run(self.pass_on(handles, stop_requests))
        finally:
            for name in self._plan.replicas:
                serve.delete(self._application(name), _blocking=False)

    def _application(self, pair: str) -> str:
        return f"specdemo-{self._plan.page}-{pair}"

    def deploy(self) -> dict[str, Any]:
        """Start the replicas, or replace them one after the other; return a handle for each pair."""
        cpus = cpus_per_replica(self._plan)
        if missing := missing_resources(self._plan, cpus):
            _log.error("%s", missing)
        edition = time.time_ns()
        targets = []
        for name, counts in self._plan.replicas.items():
            replica = _deployment(counts, cpus, self._plan)
            bound = replica.bind(self._plan.sources[name], self._plan.recalibrate, edition)
            targets.append(serve.RunTarget(bound, name=self._application(name), route_prefix=None))
        serve.run_many(targets, wait_for_applications_running=False)
        return {
            name: serve.get_deployment_handle(DEPLOYMENT, self._application(name)).options(stream=True)
            for name in self._plan.replicas
        }

    async def pass_on(self, handles: dict[str, Any], stop_requests: Any) -> None:
        """Act on the page's messages until it has gone.

        Args:
            handles: From :meth:`deploy`.
            stop_requests: The actor that replicas listen to.
        """
        self._handles, self._stop_requests = handles, stop_requests
        reporting = asyncio.ensure_future(self._report_status())
        while (message := await asyncio.to_thread(self._messages.get)) is not None:
            match message:
                case StartJob():
                    self._jobs[message.number] = asyncio.ensure_future(self._do(message))
                case StopJob(number):
                    self._stop(number)
                case RestartReplicas():
                    self._redeploying = asyncio.ensure_future(self._redeploy(self._redeploying))
        reporting.cancel()

    def _receive(self) -> None:
        """Read the page's messages from before there is a cluster until the page has gone; then end."""
        self.read_messages()
        time.sleep(LEAVE_S)
        os._exit(0)

    def read_messages(self) -> None:
        """Read the page's messages until it closes the connection."""
        with suppress(EOFError, OSError):
            while True:
                self._messages.put(self._connection.recv())
        self._messages.put(None)

    async def _redeploy(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await previous
        try:
            self._handles = await asyncio.to_thread(self.deploy)
        except Exception:
            _log.exception("The replicas could not be restarted; the present ones stay.")

    def _stop(self, number: int) -> None:
        if task := self._jobs.get(number):
            self._stop_requests.stop.remote(number)
            if number not in self._with_replica:
                task.cancel()  # a replica that has just got it finds the stop request

    async def _do(self, start: StartJob) -> None:
        number = start.number
        try:
            batches = self._handles[start.pair].job.remote(start.request, self._stop_requests, number)
            async for batch in batches:
                self._with_replica.add(number)
                self._send(JobEvents(number, batch))
            self._stop_requests.forget.remote(number)
            self._send(JobEnded(number))
        except asyncio.CancelledError:
            self._send(JobEnded(number))
        except Exception as error:  # a visitor waits for this job, whatever was raised
            _log.warning("A job was lost: %s", error)
            self._stop_requests.stop.remote(number)  # its replica may still be there
            self._send(JobLost(number))
        finally:
            self._with_replica.discard(number)
            del self._jobs[number]

    def _send(self, message: Any) -> None:
        with self._sending, suppress(OSError):  # if the page has gone, ``_receive`` notices
            self._connection.send(message)

    async def _report_status(self) -> None:
        reported = None
        while True:
            try:
                status = await asyncio.to_thread(self._status)
            except Exception as error:  # until the deadline
                _log.warning("The cluster does not report its status: %s", error)
            else:
                self._deadline = time.monotonic() + SILENT_S
                if status != reported:
                    self._send(status)
                    reported = status
            # Answering costs the cluster processor time that the models need.
            complete = reported is not None and all(
                reported.running.get(name) == counts.maximum for name, counts in self._plan.replicas.items()
            )
            await asyncio.sleep(IDLE_POLL_S if complete else POLL_S)

    def _status(self) -> ClusterStatus:
        ray.get(self._stop_requests.ping.remote(), timeout=SILENT_S)
        applications = serve.status().applications
        running, error = {}, ""
        for name in self._plan.replicas:
            application = applications.get(self._application(name))
            deployment = application and application.deployments.get(DEPLOYMENT)
            running[name] = deployment.replica_states.get(ReplicaState.RUNNING, 0) if deployment else 0
            failed = (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY)
            if application and application.status in failed:
                error = (deployment.message if deployment else "") or application.message
        return ClusterStatus(running, error)

    def _end_with_cluster(self) -> None:
        """End this process when the cluster is silent: a call to it may hang for minutes."""
        while time.monotonic() < self._deadline:
            time.sleep(1.0)
        os._exit(CLUSTER_GONE)


def connect(address: str) -> None:
    """Join the cluster, or with ``auto`` start one on this machine if none runs."""
    if address == AUTO:
        ray.init(namespace=NAMESPACE, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address, namespace=NAMESPACE, log_to_driver=False)


def cpus_per_replica(plan: Plan) -> float:
    """Return the cores of a replica: those asked for, or an even share of the cluster's."""
    if plan.cpus is not None:
        return plan.cpus
    return max(1.0, ray.cluster_resources().get("CPU", 1.0) // plan.max_replicas)


def missing_resources(plan: Plan, cpus: float) -> str:
    """Return a sentence if the cluster is too small for the smallest numbers of replicas, else nothing."""
    available = ray.cluster_resources()
    count = sum(counts.minimum for counts in plan.replicas.values())
    for name, each in (("CPU", cpus), ("GPU", plan.gpus)):
        if count * each > (has := available.get(name, 0.0)):
            return (
                f"{count} replicas with {each:g} {name}s each need more than the {has:g} of the cluster; "
                "ask for fewer, or give each less."
            )
    return ""


def _deployment(counts: ReplicaRange, cpus: float, plan: Plan) -> Any:
    scaling: dict[str, Any] = {"num_replicas": counts.minimum}
    if counts.minimum < counts.maximum:
        scaling = {
            "autoscaling_config": {
                "min_replicas": counts.minimum,
                "max_replicas": counts.maximum,
                "target_ongoing_requests": 1,
                "metrics_interval_s": 1,
                "look_back_period_s": 5,
                "upscale_delay_s": 5,
                "downscale_delay_s": 300,
            }
        }
    # A job is sent when a replica has sent the end of the previous one, and finds it busy for another moment.
    # By default Serve looks again only after 25 ms, then 50.
    routing = {"initial_backoff_s": 0.005, "backoff_multiplier": 2, "max_backoff_s": 0.1}
    return serve.deployment(
        name=DEPLOYMENT,
        max_ongoing_requests=1,
        ray_actor_options={"num_cpus": cpus, "num_gpus": plan.gpus},
        graceful_shutdown_timeout_s=plan.max_seconds + GRACE_S,
        health_check_period_s=5,
        request_router_config=routing,
        **scaling,
    )(Replica)


def main(descriptor: int) -> None:
    """Receive the plan over the page's connection and carry it out."""
    connection = Connection(descriptor)
    Driver(connection.recv(), connection).run()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # do not wait for Ray's threads
