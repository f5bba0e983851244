"""The driver: the process between the page and the cluster, which starts replicas and sends them jobs.

If the cluster's head node is lost, Ray ends every process that is connected to it (seen with Ray 2.60). The
page must not end, so only the driver imports Ray. If the driver ends, ``link`` starts a new one.
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
"""The seconds between two checks of the cluster's status: while replicas are missing, and while all run."""
START_S = 300.0
"""The maximum time to join the cluster and start the replicas."""
SILENT_S = 60.0
"""The driver ends if the cluster does not answer for this long; a busy machine may need half of it."""
LEAVE_S = 10.0
"""The maximum time that this process needs to end normally after the page has ended."""
CLUSTER_GONE = 3
"""The exit status of the driver if the cluster does not answer."""
GRACE_S = 20.0
"""A replica that must end gets the time of the longest job plus this many seconds."""
_log = logging.getLogger(__name__)


class Driver:
    """The driver of one page: it starts the replicas and passes jobs on to them.

    When the page closes the connection, the driver deletes its replicas and ends. It also ends when the
    cluster does not answer. In that case the replicas may still run, and the next driver replaces them.

    Args:
        plan: The replicas to start.
        connection: The connection to the page.
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
        """Start the replicas, and pass on jobs until the page closes the connection."""
        for task in (self._end_with_cluster, self._receive):
            threading.Thread(target=task, daemon=True).start()
        connect(self._plan.address)
        # Ignore signals that a process supervisor sends to all processes: the driver ends after the page.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        serve.start(http_options={"location": "NoServer"})  # pyright: ignore[reportArgumentType]
        # Run the actor on this machine, so that it does not depend on another one.
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
        """Start the replicas, or replace running ones one after the other.

        Returns:
            Name of a pair -> Serve handle of its replicas.
        """
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
        """Process the page's messages until the page closes the connection.

        Args:
            handles: The result of :meth:`deploy`.
            stop_requests: The ``StopRequests`` actor, from which replicas learn that a job must stop.
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
        """Read the page's messages until it closes the connection; end this process ``LEAVE_S`` later.

        This thread starts before the cluster is joined, so the process also ends if joining hangs.
        """
        self.read_messages()
        time.sleep(LEAVE_S)
        os._exit(0)

    def read_messages(self) -> None:
        """Put the page's messages into a queue until the page closes the connection, then put None."""
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
                task.cancel()  # if a replica has just received the job, it finds the stop request

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
        except Exception as error:  # after any exception, the waiting visitor must get a reply
            _log.warning("A job was lost: %s", error)
            self._stop_requests.stop.remote(number)  # the replica may still be computing
            self._send(JobLost(number))
        finally:
            self._with_replica.discard(number)
            del self._jobs[number]

    def _send(self, message: Any) -> None:
        with self._sending, suppress(OSError):  # ``_receive`` notices that the page has closed the connection
            self._connection.send(message)

    async def _report_status(self) -> None:
        reported = None
        while True:
            try:
                status = await asyncio.to_thread(self._status)
            except Exception as error:  # try again; ``_end_with_cluster`` ends the process at the deadline
                _log.warning("The cluster does not report its status: %s", error)
            else:
                self._deadline = time.monotonic() + SILENT_S
                if status != reported:
                    self._send(status)
                    reported = status
            # Ask less often if all replicas run: each answer takes processor time from the models.
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
        """End this process if the cluster does not answer in time; a call to it may hang for minutes."""
        while time.monotonic() < self._deadline:
            time.sleep(1.0)
        os._exit(CLUSTER_GONE)


def connect(address: str) -> None:
    """Join the cluster at ``address``. ``auto`` joins the one on this machine, or starts one if none runs."""
    if address == AUTO:
        ray.init(namespace=NAMESPACE, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address, namespace=NAMESPACE, log_to_driver=False)


def cpus_per_replica(plan: Plan) -> float:
    """Return the CPU cores of each replica: the host's setting, or an even share of the cluster's cores."""
    if plan.cpus is not None:
        return plan.cpus
    return max(1.0, ray.cluster_resources().get("CPU", 1.0) // plan.max_replicas)


def missing_resources(plan: Plan, cpus: float) -> str:
    """Return an error message if the cluster is too small for the minimum number of replicas, else ``""``."""
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
    # The next job is sent as soon as a replica has sent the end of its current one, but the replica still
    # counts as busy for a moment. By default, Serve tries again only after 25 ms, then after 50 ms.
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
    """Receive the plan over the connection to the page, and run a driver for it.

    Args:
        descriptor: The file descriptor of the connection.
    """
    connection = Connection(descriptor)
    Driver(connection.recv(), connection).run()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # do not wait for Ray's threads
