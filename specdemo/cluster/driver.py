"""The driver: the process between the page and the cluster, which starts replicas and sends them jobs.

If the head of the cluster is lost, Ray ends every process that is connected to it (seen with Ray 2.60). The
page must not end, so only the driver imports Ray. If the driver ends, the page starts a new one.
"""

import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import ray
from ray import serve
from ray.serve.schema import ReplicaState

from specdemo.cluster.plan import AUTO, Plan
from specdemo.cluster.replica import Replica
from specdemo.cluster.service import JobEvents, JobMessage
from specdemo.records.limits import UserError

NAMESPACE = "specdemo"
DEPLOYMENT = "Replica"
POLL_S = 2.0
"""The seconds between two checks of the cluster's status; each one takes processor time from the models."""
START_S, SILENT_S = 300, 60
"""The driver ends if joining the cluster takes longer or the cluster is silent for longer, in seconds."""
ADDING_S = 5
"""The seconds for which visitors must have waited before a replica is added."""
GRACE_S = 20.0
"""A replica that must end gets the time of the longest job plus this many seconds."""
_log = logging.getLogger(__name__)


# Ray sends a class of the main module by value, so the actor's process does not import torch.
class StopRequests:
    """The actor from which replicas learn that a job must stop."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def add(self, number: int) -> None:
        self._numbers.add(number)

    def contains(self, number: int) -> bool:
        return number in self._numbers


class Driver:
    """Starts the replicas of one page, and passes on jobs until the page closes the connection."""

    def __init__(self, plan: Plan, connection: Connection):
        self._plan = plan
        self._connection = connection
        self._sending = threading.Lock()
        self._applications = {name: f"specdemo-{plan.page}-{name}" for name in plan.replicas}

    def run(self) -> None:
        # A call to a lost cluster may hang for minutes, so an alarm ends this process. The next driver
        # replaces replicas that still run.
        signal.alarm(START_S)
        connect(self._plan.address)
        serve.start(http_options={"location": "NoServer"})  # pyright: ignore[reportArgumentType]
        # Without restarts, the loss of this actor would end all jobs.
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        stop_requests = ray.remote(StopRequests).options(**options).remote()
        self.deploy()
        handles = {
            name: serve.get_deployment_handle(DEPLOYMENT, application).options(stream=True)
            for name, application in self._applications.items()
        }
        threading.Thread(target=self._report_status, daemon=True).start()
        self.pass_on(handles, stop_requests)
        for application in self._applications.values():
            serve.delete(application, _blocking=False)

    def deploy(self) -> None:
        """Start the replicas, or replace running ones one after the other."""
        resources = replica_resources(self._plan)
        targets = []
        for name, (minimum, maximum) in self._plan.replicas.items():
            scaling: dict[str, Any] = {"num_replicas": minimum}
            if minimum < maximum:
                # By default, visitors wait for half a minute before a replica is added for them.
                limits = {"min_replicas": minimum, "max_replicas": maximum, "target_ongoing_requests": 1}
                limits |= {"upscale_delay_s": ADDING_S, "look_back_period_s": ADDING_S}
                scaling = {"autoscaling_config": limits}
            deployment = serve.deployment(
                name=DEPLOYMENT,
                max_ongoing_requests=1,
                ray_actor_options=resources,
                graceful_shutdown_timeout_s=self._plan.max_seconds + GRACE_S,
                # By default, a free replica may wait half a second for the next job.
                request_router_config={"max_backoff_s": 0.1},
                **scaling,
            )(Replica)
            replica = deployment.bind(self._plan.sources[name], self._plan.recalibrate, time.time_ns())
            targets.append(serve.RunTarget(replica, name=self._applications[name], route_prefix=None))
        serve.run_many(targets, wait_for_applications_running=False)

    def pass_on(self, handles: dict[str, Any], stop_requests: Any) -> None:
        """Process the page's messages; ``handles`` has the Serve handle of each pair."""
        with suppress(EOFError, OSError):
            while message := self._connection.recv():
                match message:
                    case Plan():
                        try:
                            self.deploy()
                        except Exception:
                            _log.exception("The replicas could not be restarted; the present ones stay.")
                    case JobMessage(number, _, None):
                        stop_requests.add.remote(number)
                    case JobMessage():
                        job = [message, handles[message.pair], stop_requests]
                        threading.Thread(target=self._do, args=job, daemon=True).start()

    def _do(self, job: JobMessage, handle: Any, stop_requests: Any) -> None:
        try:
            for events in handle.job.remote(job.request, stop_requests, job.number):
                self._send(JobEvents(job.number, events))
            self._send(JobEvents(job.number, []))
        except Exception as error:  # after any exception, the waiting visitor must get a reply
            _log.warning("A job was lost: %s", error)
            time.sleep(POLL_S)  # until then the page knows which replicas are lost
            self._send(JobEvents(job.number, None))

    def _send(self, message: Any) -> None:
        with self._sending, suppress(OSError):  # ``pass_on`` notices that the page has closed the connection
            self._connection.send(message)

    def _report_status(self) -> None:
        reported = ""
        while True:
            with suppress(Exception):  # try again; if the cluster stays silent, the alarm ends this process
                statuses, running = serve.status().applications, {}
                for name, application in self._applications.items():
                    if status := statuses[application].deployments.get(DEPLOYMENT):
                        running[name] = status.replica_states.get(ReplicaState.RUNNING, 0)
                        failed = status.status in ("DEPLOY_FAILED", "UNHEALTHY")
                        if failed and status.message != reported:
                            reported = status.message
                            _log.error("The cluster reports: %s", reported)
                self._send(running)
                signal.alarm(SILENT_S)
            time.sleep(POLL_S)


def connect(address: str) -> None:
    """Join the cluster at ``address``. ``auto`` joins the one on this machine, or starts one if none runs."""
    head = None if address == AUTO else address
    ray.init(head, namespace=NAMESPACE, include_dashboard=False, log_to_driver=False)


def replica_resources(plan: Plan) -> dict[str, float]:
    """Return Ray's options for one replica: an even share of the cores, and a GPU if the cluster has GPUs."""
    total = ray.cluster_resources()
    cores, gpus = total.get("CPU", 0.0), total.get("GPU", 0.0)
    on_gpu = gpus > 0 and any(sources.device != "cpu" for sources in plan.sources.values())
    count = sum(counts.minimum for counts in plan.replicas.values())
    if count > (gpus if on_gpu else cores):
        has = f"{gpus:g} GPUs" if on_gpu else f"{cores:g} CPU cores"
        raise UserError(f"The cluster has {has}, too few for {count} replicas; lower --replicas.")
    return {"num_cpus": max(1.0, cores // plan.max_replicas), "num_gpus": float(on_gpu)}


if __name__ == "__main__":
    page = Connection(int(sys.argv[1]))
    try:
        Driver(page.recv(), page).run()
        ray.shutdown()
    except (UserError, ConnectionError) as error:
        print(f"specdemo: {error}", file=sys.stderr, flush=True)
    os._exit(0)  # do not wait for Ray's threads
