"""Sinks that the environment variable ``PENSTOCK_OBSERVE`` names, and sinks that profiles name."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from logging import getLogger
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError, Unusable
from penstock.events import when_fetching
from penstock.observe.chrome import ChromeTrace
from penstock.observe.log import JsonLines, Log
from penstock.observe.otel_sink import OpenTelemetry, telemetry_sink
from penstock.observe.prometheus import Prometheus
from penstock.observe.subscription import has, receive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.observe.sink import Sink
    from penstock.stores.profiles.sinks import NamedSinks

VARIABLE: Final = "PENSTOCK_OBSERVE"

_LOG = getLogger("penstock")


def begin(environ: Mapping[str, str]) -> None:
    """Open the sinks that ``PENSTOCK_OBSERVE`` names, until the process ends; log failures.

    Called by ``import penstock`` if the variable is set, also in workers.
    """
    from multiprocessing import current_process, parent_process  # few programs have the variable

    try:
        sinks = named_sinks(environ.get(VARIABLE, ""))
    except ConfigError as error:
        # An import must not fail because of a sink.
        _LOG.warning("opening no sink: %s", error)
        return
    # The check that multiprocessing itself makes: the parent process is not known yet.
    spawning = getattr(current_process(), "_inheriting", False)
    for number, sink in enumerate(sinks):
        name = f"{VARIABLE} {number}"
        if spawning and not sink.events:
            _open_with_engine(name, sink)
        else:
            receive(name, (sink,), first=parent_process() is None)


def begin_named(named: NamedSinks) -> None:
    """Open the sinks of a profile until the process ends, unless they are already open; log each failure once."""
    from multiprocessing import parent_process  # few profiles name sinks

    makers: dict[object, Callable[[], Sink]] = {word: partial(_sink, word, "profile") for word in named.words}
    if named.telemetry:
        makers[named.telemetry] = partial(telemetry_sink, named.telemetry)
    for said, make in makers.items():
        name = f"profile {blake2b(repr(said).encode(), digest_size=16).hexdigest()}"  # the same in all processes
        if name in _begun:
            continue
        _begun.add(name)
        try:
            sink = make()
        except ConfigError as error:
            # A broken sink must not break storage (trap 14).
            _LOG.warning("opening no sink: %s", error)
            continue
        if not has(sink):
            receive(name, (sink,), first=parent_process() is None or not sink.events)


# Names of sinks that this process has begun, or the process that it was forked from.
_begun: Final[set[str]] = set()


def _open_with_engine(name: str, sink: Sink) -> None:
    """Open a sink of counts when this process begins to fetch, unless it has received its parent's sink by then.

    The process adds its counts to the parent's sink. A second sink would ask for the port that the parent's sink has.
    """

    def start() -> None:
        stop()
        receive(name, (sink,), first=True)

    stop = when_fetching(start)


def named_sinks(text: str) -> tuple[Sink, ...]:
    """Return the sinks that comma-separated words name.

    The words are ``jsonl:PATH``, ``chrome:PATH``, ``log``, ``otel``, ``otel:ENDPOINT``, and ``prometheus``,
    ``prometheus:PORT`` or ``prometheus:ADDRESS:PORT``.
    """
    return tuple(_sink(word.strip()) for word in text.split(",") if word.strip())


def _sink(word: str, where: str = VARIABLE) -> Sink:
    kind, _, rest = word.partition(":")
    if kind not in _KINDS:
        raise ConfigError(f"{where}: {word!r} does not name a sink: write one of {', '.join(_KINDS)}")
    try:
        return _make_sink(kind, rest)
    except (ValueError, Unusable) as error:
        raise ConfigError(f"{where}: {kind}: {error}") from error


_KINDS: Final = ("jsonl", "chrome", "log", "otel", "prometheus")


def _make_sink(kind: str, rest: str) -> Sink:
    match kind:
        case "jsonl" | "chrome":
            if not rest:
                raise ValueError("a path must follow the colon")
            return JsonLines(rest) if kind == "jsonl" else ChromeTrace(rest)
        case "log":
            if rest:
                raise ValueError("this name takes no argument")
            return Log()
        case "otel":
            return OpenTelemetry(endpoint=rest)
    address, _, port = rest.rpartition(":")
    if port and not port.isdecimal():
        raise ValueError(f"port must be a number, got {port!r}: write prometheus:PORT or prometheus:ADDRESS:PORT")
    given = {"port": int(port)} if port else {}
    return Prometheus(**given, **({"address": address} if address else {}))  # type: ignore[arg-type]
