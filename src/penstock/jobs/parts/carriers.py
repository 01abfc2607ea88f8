"""Carriers that run the parts of a job: this process, processes of this machine (``processes``), or tasks on Ray.

A carrier knows nothing of the work.

``on_each_node`` is for work that belongs to machines, and not to parts.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from math import ceil, inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import PenstockError, Transient, Unreachable, Unusable, require_extras
from penstock.events import context, enter
from penstock.jobs.parts.attempts import PAUSE_S, PartAttempt
from penstock.jobs.parts.operation import Ended, JobPart, Means, Operation, done
from penstock.jobs.parts.processes import LocalProcesses, refuse_unsendable
from penstock.jobs.parts.records import Records
from penstock.values import whole
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from penstock.options import StoreOptions

R = TypeVar("R")

# Parts in Ray's hands for each that can run: enough that no processor waits, and that an autoscaler sees demand.
_AHEAD = 2.5
# The size of the cluster is asked for so often, for it may grow and shrink.
_LOOK_S = 2.0
# For the port of a cluster to answer.
_REACH_S = 10.0
# For cancelled parts to end their requests, which takes at most 3 s.
_CANCEL_S = 5.0


class Here:
    """Carrier: this process, one part after the other; ``Means.processes`` share its objects."""

    def carried(self, operation: Operation, parts: Iterator[JobPart], means: Means) -> Generator[Ended]:
        for part in parts:
            yield done(operation, part, means)


@dataclass(frozen=True, slots=True)
class Ray:
    """The cluster that does the parts of a job: ``on=ps.Ray()``.

    Each part is a task of Ray core. Nothing but short records passes through Ray, and no credentials: each machine uses
    its own environment, roles or ``penstock.toml``. Penstock must be installed on them, in this version.

    Args:
        address: As for ``ray.init``: ``"auto"`` finds the cluster that this machine belongs to, ``"ray://host:10001"``
            is a client's. A program that has called ``ray.init`` uses that cluster, whatever stands here.
        cpus_per_part: Processors that a part takes from Ray's count; less than one lets more parts run than there
            are processors: for stores that are far away.
        retries: Most repeats of a part on another worker when its worker dies; machines that are lost do not count
            for a minute. A part that takes more workers with it is recorded as failed, and the others continue.

    Raises:
        Unusable: The address is not a text, or a number is not positive.

    Example:
        >>> ps.Ray("auto", cpus_per_part=0.5).retries
        3
    """

    address: str = "auto"
    _: KW_ONLY
    cpus_per_part: float = 1.0
    retries: int = 3

    def __post_init__(self) -> None:
        # With the address None, Ray starts a new cluster on this machine.
        address: object = self.address
        if not isinstance(address, str) or not address:
            raise Unusable(f'address must be a str such as "auto" or "ray://host:10001", got {address!r}')
        given: object = self.cpus_per_part
        if not isinstance(given, int | float) or not 0 < given < inf:
            raise Unusable(f"cpus_per_part must be a positive number, got {given!r}")
        whole(self.retries, "retries", 0)


def carrier(on: Ray | None, operation: Operation, processes: int | None = 1) -> Here | LocalProcesses | _OnRay:
    """Return the carrier of an operation's parts; nothing is started. Refuses, for Ray, options that hold a secret.

    Its ``carried`` yields parts as they end, recorded; in any order. Closing that generator cancels the others.
    """
    if on is not None:
        return _OnRay(_require_ray(on), operation)
    return Here() if processes == 1 else LocalProcesses(processes)


def _require_ray(on: object) -> Ray:
    if not isinstance(on, Ray):
        raise Unusable(f"on must be ps.Ray(…), which takes the address of a cluster, got {on!r}")
    return on


class _OnRay:
    """Carrier: tasks of Ray core in a sliding window."""

    def __init__(self, options: Ray, operation: Operation) -> None:
        self._ray, self._options = _library(), options
        # Refuses secrets, before anything is done.
        try:
            self._blob = self._ray.cloudpickle.dumps((VERSION, operation))
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise refuse_unsendable(error) from error

    def carried(self, operation: Operation, parts: Iterator[JobPart], means: Means) -> Generator[Ended]:
        """Give parts to the cluster, 2 to 3 for each that can run at once."""
        ray = self._ray
        # Ray's own retries come at once, and on a machine that died a second ago they fail again.
        task = ray.remote(_part).options(
            num_cpus=self._options.cpus_per_part,
            max_retries=0,
            scheduling_strategy="SPREAD",
            name=f"penstock.{operation.name}",
        )
        with _connection(ray, self._options.address), _cancel_left_tasks(ray) as given:
            window = _Window(ray, self._options.cpus_per_part)
            coming = (PartAttempt(part) for part in parts)
            again = deque[PartAttempt]()
            attempt = next(coming, None)
            where, trace = (means.records.url, means.records.run), context()
            while attempt is not None or given or again:
                while again and again[0].not_before <= monotonic():
                    retried = again.popleft()
                    given[task.remote(self._blob, where, retried.part, trace)] = retried
                while attempt is not None and len(given) + len(again) < window.size():
                    given[task.remote(self._blob, where, attempt.part, trace)] = attempt
                    attempt = next(coming, None)
                for ended in self._ended(given, _LOOK_S if not again else PAUSE_S, means):
                    if isinstance(ended, PartAttempt):
                        again.append(ended)
                    else:
                        yield ended

    def _ended(self, given: dict[Any, PartAttempt], limit_s: float, means: Means) -> Iterator[Ended | PartAttempt]:
        """Wait until parts end, and yield them; parts whose worker died are yielded as attempts to retry."""
        refs = [*given]
        if not refs:
            sleep(limit_s)
            return
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=limit_s)
        if ready:
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in ready:
            yield self._result(ref, given.pop(ref), means)

    def _result(self, ref: Any, attempt: PartAttempt, means: Means) -> Ended | PartAttempt:  # noqa: ANN401  Ray's reference
        errors = self._ray.exceptions
        try:
            ended: Ended = self._ray.get(ref)
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            raise _cause(error) from error
        except errors.RayError as error:
            # Until Ray has noticed that a machine is gone, it gives tasks to it.
            gone = isinstance(error, errors.LocalRayletDiedError | errors.NodeDiedError)
            if gone and self._is_cut_off():
                raise Unreachable(
                    "cannot distribute parts: the Ray node that this process belongs to has died; parts that are done "
                    "are recorded: repeat the same call",
                    url=means.records.url,
                ) from error
            if (again := attempt.again(self._options.retries, gone=gone)) is not None:
                return again
            return attempt.set_aside(str(error).strip().partition("\n")[0], means)
        return ended

    def _is_cut_off(self) -> bool:
        """Return whether Ray has noticed that the node of this process is dead: every further part would fail."""
        own = self._ray.get_runtime_context().get_node_id()
        return any(node["NodeID"] == own and not node["Alive"] for node in self._ray.nodes())


class _Window:
    """Number of parts that Ray may run."""

    def __init__(self, ray: Any, cpus_per_part: float) -> None:  # noqa: ANN401  the library
        self._ray, self._cpus = ray, cpus_per_part
        self._size, self._until = 1, 0.0

    def size(self) -> int:
        if (now := monotonic()) >= self._until:
            cpus = self._ray.cluster_resources().get("CPU", 1.0)
            self._size, self._until = max(2, ceil(_AHEAD * cpus / self._cpus)), now + _LOOK_S
        return self._size


def on_each_node(on: Ray, name: str, function: Callable[[Any], R], argument: object) -> Generator[R | PenstockError]:
    """Call a function on each machine of a cluster that has the processors of a part; yield the results as they come.

    A machine that is lost, or takes ``on.retries`` further workers with it, has ``Transient`` in place of a result.
    """
    on, ray = _require_ray(on), _library()
    blob = ray.cloudpickle.dumps((VERSION, function, argument))
    with require_extras("on=ps.Ray(…) needs Ray", ray="ray"):
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At

    task, named = ray.remote(_call), f"penstock.{name}"
    with _connection(ray, on.address), _cancel_left_tasks(ray) as given:
        for node in ray.nodes():
            # Head nodes often have none, and nothing trains there.
            if node["Alive"] and node["Resources"].get("CPU", 0.0) >= on.cpus_per_part:
                here = task.options(
                    num_cpus=on.cpus_per_part,
                    max_retries=on.retries,
                    scheduling_strategy=At(node["NodeID"], soft=False),
                    name=named,
                )
                given[here.remote(blob)] = node["NodeManagerHostname"]
        if not given:
            raise Unusable(f"no machine of the cluster has cpus_per_part={on.cpus_per_part:g} processors")
        while given:
            ready, _ = ray.wait([*given], num_returns=1)
            host = given.pop(ready[0])
            try:
                yield ray.get(ready[0])
            except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as error:
                raise _cause(error) from error
            except ray.exceptions.RayError as error:
                why = str(error).strip().partition("\n")[0]
                yield Transient(f"machine {host} was lost, or its workers died ({why}); repeat the call", url=name)


def _call(blob: bytes) -> Any:  # noqa: ANN401  the function's
    version, function, argument = pickle.loads(blob)  # noqa: S301  of its own driver
    _check_version(version)
    return function(argument)


def _part(blob: bytes, where: tuple[str, str], part: JobPart, trace: bytes) -> Ended:
    """Do a part in a worker of the cluster; its spans belong to the trace of the driver."""
    enter(trace)
    operation, records = _unpickle_operation(blob, *where)
    # The worker of an earlier attempt, or of a driver that was killed, may have done it meanwhile.
    if (record := records.record(part.number)) is not None:
        return Ended(record, None)
    return done(operation, part, Means(records))


@lru_cache(maxsize=4)
def _unpickle_operation(blob: bytes, url: str, run: str) -> tuple[Operation, Records]:
    version, operation = pickle.loads(blob)  # noqa: S301  of the job's own driver
    _check_version(version)
    store: StoreOptions | str = operation.store
    return operation, Records(url, store, run)


def _check_version(version: str) -> None:
    if version != VERSION:
        raise Unusable(f"the workers have Penstock {VERSION}, and the driver has {version}: install the same version")


@contextmanager
def _connection(ray: Any, address: str) -> Generator[None]:  # noqa: ANN401  the library
    """Connect to a cluster, unless the program has done so; disconnect afterwards."""
    if ray.is_initialized():
        yield
        return
    try:
        _reach(address)
        # What each dead worker prints would bury the one line that tells of it.
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        raise Unreachable(
            f"cannot reach a Ray cluster at {address!r}: {error}; start one (ray start --head), or pass its address"
        ) from error
    if threading.current_thread() is threading.main_thread():
        # Ray has put a handler of its own below Python's, which would end this process at once.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Connect to the port of a cluster once: Ray itself tries for more than ten minutes if nothing answers there."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()


@contextmanager
def _cancel_left_tasks(ray: Any) -> Generator[dict[Any, Any]]:  # noqa: ANN401  the library
    """Yield a dictionary of Ray's tasks; at the end, cancel the rest and give them some seconds."""
    given: dict[Any, Any] = {}
    try:
        yield given
    finally:
        if refs := [*given]:
            with suppress(Exception):
                for ref in refs:
                    ray.cancel(ref)
                ray.wait(refs, num_returns=len(refs), timeout=_CANCEL_S)


def _cause(error: Exception) -> Exception:
    """Return the task's Penstock error; an error with advice if workers lack Penstock; else the original error."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, PenstockError):
        return cause
    if isinstance(cause, ImportError):
        return Unusable(f"the workers of the cluster cannot import Penstock: {cause}; install it there")
    return error


def _library() -> Any:  # noqa: ANN401  its module
    with require_extras("on=ps.Ray(…) needs Ray", ray="ray"):
        import ray
    return ray
