"""``penstock top``: a live view of running loaders, or of the requests of a process with metrics."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException
from math import inf, nan
from textwrap import wrap
from threading import Thread
from time import sleep, time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.request import urlopen

from typer import Argument, Option, Typer

from penstock.cli.output import harmless_lines, json_line, readable, share_bar, write
from penstock.errors import NotFound, Unreachable, Unusable, public_url
from penstock.schema import COUNT, check_json

if TYPE_CHECKING:
    from penstock.engine.node.live import Description

app = Typer()
_PATIENCE_S = 10.0
_MOST_BYTES = 8 << 20
# Share of the time below which a cause is not shown.
_LEAST = 0.005
_WIDTH = 100
# Home and erase below: the screen does not flicker as it would after a full erase.
_HOME, _ERASE = "\x1b[H", "\x1b[J"
_SAMPLE = re.compile(r'^(penstock_\w+)\{(?:host|cache)="((?:[^"\\]|\\.)*)"(?:,le="([^"]+)")?\} (\S+)$', re.MULTILINE)
_COUNTS = {
    "host": (
        *("requests", "failed_requests", "throttled_requests", "retried_requests"),
        *("received_bytes", "sent_bytes"),
    ),
    "cache": ("cache_hits", "cache_misses", "cache_hit_bytes"),
}

_TIMES = {"p50": float, "p99": float}
# What is shown of a loader's description.
_LOADER = {
    **dict.fromkeys(("waiting_s", "computing_s"), float),
    **dict.fromkeys(("requests", "retries", "errors", "cached", "batches", "samples", "rank", "world"), COUNT),
    # No cause: the training hardly waits.
    "cause": (str, None),
    "recommendation": str,
    "causes": {str: float},
    "context": dict.fromkeys(("url", "batch_size", "num_workers", "decode_threads", "prefetch"), object),
    "hosts": [{"host": str, "received_bytes": COUNT, "first_byte_s": _TIMES}],
}

# A state of what is watched, by loader or host.
State = Mapping[str, Any]


@app.command(epilog="Examples: penstock top; penstock top 12345; penstock top http://node7:9464/metrics")
def top(
    target: Annotated[
        str,
        Argument(
            metavar="[PID|URL]", help="A process, or the address of its metrics. Default: this user's loaders here."
        ),
    ] = "",
    *,
    interval: Annotated[
        float, Option("--interval", "-i", min=0.1, metavar="SECONDS", help="Between two screens.")
    ] = 1.0,
    count: Annotated[
        int | None,
        Option(
            "--count", "-n", min=1, show_default=False, help="Screens. Default: until Ctrl-C; 1 without a terminal."
        ),
    ] = None,
    json: Annotated[
        bool, Option("--json", help="One JSON object per line, for each loader or host and screen.")
    ] = False,
) -> None:
    """Show the state of running loaders: rate, waiting and its causes, requests, cache. Exit code 1 if there are none.

    Loaders of other users are not seen, nor those of a machine or container that does not share the directory of
    PENSTOCK_NODE. With the address of the metrics of a process (penstock.observe.Prometheus), its requests and caches
    are shown, from anywhere.
    """
    look, record, lines = _make_watchers(target)
    left = count if count is not None else None if sys.stdout.isatty() else 1
    before = look()
    # Ctrl-C is how one leaves a screen.
    with suppress(KeyboardInterrupt):
        while left is None or left > 0:
            sleep(interval)
            now = look()
            rows = [record(name, before.get(name), now[name]) for name in now]
            if json:
                write("".join(f"{json_line(row)}\n" for row in rows))
            else:
                text = "\n\n".join("\n".join(lines(row)) for row in rows)
                write((_screen(text) if sys.stdout.isatty() else text) + "\n")
            before, left = now, None if left is None else left - 1


def _screen(text: str) -> str:
    """Return a text that replaces the terminal's content, cut to its size."""
    columns, rows = shutil.get_terminal_size()
    shown = [line[:columns] for line in harmless_lines(text).split("\n")]
    return _HOME + "\n".join(f"{line}\x1b[K" for line in shown[: rows - 1]) + _ERASE


def _make_watchers(
    target: str,
) -> tuple[Callable[[], State], Callable[..., dict[str, Any]], Callable[..., Iterator[str]]]:
    """Return functions that look at the target, compare two states, and show the result."""
    if target.startswith(("http://", "https://")):
        return lambda: metrics(_page(target)), metrics_record, metrics_lines
    if target and not target.isdecimal():
        raise Unusable(f"cannot watch {target!r}: write a process's number, or http://HOST:9464/metrics")
    return lambda: _loaders(int(target or 0)), loader_record, loader_lines


# -- loaders of this machine ----------------------------------------------------------------------------------------


def _loaders(process: int) -> State:
    from penstock.engine.node.live import ask, running

    where = ask()
    if where is None:
        raise Unusable("cannot watch loaders: PENSTOCK_NODE=off disables their status files")
    found = {f"{each.process}-{each.number}": each for each in running(where) if process in (0, each.process)}
    for name, each in found.items():
        if each.values:
            check_json(each.values, _LOADER, f"the description of loader {name}")
    if found:
        return found
    if process:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            raise NotFound(f"there is no process {process}") from None
        except PermissionError:
            raise NotFound(f"process {process} is another user's") from None
    of = f"of process {process}" if process else "of this user"
    raise NotFound(f"no loader {of} has delivered a batch and still exists (looked in {where}; see PENSTOCK_NODE)")


def loader_record(_: str, before: "Description | None", now: "Description") -> dict[str, Any]:
    """Return rates of a loader between two descriptions; with one, since it was created."""
    values, elapsed_s = now.values, time() - now.written
    if not values:
        return {"process": now.process, "loader": now.number, "silent_s": elapsed_s}
    old: dict[str, Any] = {}
    if before is not None and before.written < now.written:
        old = before.values
    waiting_s, computing_s = (values[name] - old.get(name, 0.0) for name in ("waiting_s", "computing_s"))
    spent_s = max(waiting_s + computing_s, 1e-9)
    past = old.get("causes", {})
    causes = {name: max(0.0, each - past.get(name, 0.0)) / spent_s for name, each in values["causes"].items()}
    reads = {name: values[name] - old.get(name, 0) for name in ("requests", "retries", "errors", "cached")}
    bytes_read = _sum_received(values) - _sum_received(old)
    return {
        "process": now.process,
        "loader": now.number,
        **{
            name: values["context"][name] for name in ("url", "batch_size", "num_workers", "decode_threads", "prefetch")
        },
        "rank": values["rank"],
        "world": values["world"],
        "seconds": spent_s,
        "silent_s": elapsed_s,
        "batches": values["batches"],
        "batches_per_s": (values["batches"] - old.get("batches", 0)) / spent_s,
        "samples_per_s": (values["samples"] - old.get("samples", 0)) / spent_s,
        "bytes_per_s": bytes_read / spent_s,
        "waiting": waiting_s / spent_s,
        "causes": {name: each for name, each in causes.items() if each > 0},
        **{f"{name}_per_s": each / spent_s for name, each in reads.items()},
        "cause": values["cause"],
        "recommendation": values["recommendation"],
        "hosts": {
            each["host"]: {
                "first_byte_p50_s": each["first_byte_s"]["p50"],
                "first_byte_p99_s": each["first_byte_s"]["p99"],
            }
            for each in values["hosts"]
        },
    }


def _sum_received(values: Mapping[str, Any]) -> int:
    return sum(each["received_bytes"] for each in values.get("hosts", ()))


def loader_lines(row: Mapping[str, Any]) -> Iterator[str]:
    if "batches" not in row:
        yield f"process {row['process']}: a loader without a batch for {row['silent_s']:,.0f} s, or longer"
        return
    readers = f"num_workers={row['num_workers']}" if row["num_workers"] else f"decode_threads={row['decode_threads']}"
    rank = f", rank {row['rank']} of {row['world']}" if row["world"] > 1 else ""
    yield f"process {row['process']}{rank}: {row['url'] or 'a loader'}"
    yield f"  batch_size={row['batch_size']}, {readers}, prefetch={row['prefetch']}, {row['batches']:,} batches so far"
    if row["silent_s"] > _PATIENCE_S:
        yield f"  no batch for {row['silent_s']:,.0f} s: what follows is older"
    rates = f"{row['batches_per_s']:,.3g} batches/s, {row['samples_per_s']:,.4g} samples/s"
    yield f"  rate      {rates}, {readable(int(row['bytes_per_s']))}/s received"
    yield f"  waiting         {row['waiting']:>4.0%} {share_bar(row['waiting'])}"
    for name, share in sorted(row["causes"].items(), key=lambda each: -each[1]):
        if share > _LEAST:
            yield f"    {name:<13} {share:>4.0%} {share_bar(share)}".rstrip()
    kinds = (("retries", "again"), ("errors", "failed"), ("cached", "from a cache instead"))
    more = "".join(f", {row[f'{name}_per_s']:,.3g} {word}" for name, word in kinds if row[f"{name}_per_s"])
    yield f"  requests  {row['requests_per_s']:,.4g}/s{more}"
    for host, each in row["hosts"].items():
        first = f"first byte p50 {each['first_byte_p50_s'] * 1e3:,.3g} ms, p99 {each['first_byte_p99_s'] * 1e3:,.3g} ms"
        yield f"    {host}: {first}"
    yield from (f"  {line}" for line in wrap(row["recommendation"], _WIDTH - 2))


# -- metrics of any process -----------------------------------------------------------------------------------------


def _page(url: str) -> str:
    answers: list[str | Exception] = []

    def read() -> None:
        try:
            with urlopen(url, timeout=_PATIENCE_S) as page:  # noqa: S310  http and https only
                answers.append(page.read(_MOST_BYTES + 1)[:_MOST_BYTES].decode("utf-8", "replace"))
        except Exception as error:  # noqa: BLE001  it is raised below
            answers.append(error)

    # The limit of a socket is for each byte: a server that sends one now and then would hold this process for ever.
    reader = Thread(target=read, name="penstock-top", daemon=True)
    reader.start()
    reader.join(_PATIENCE_S)
    found = answers[0] if answers else TimeoutError(f"no complete answer within {_PATIENCE_S:.0f} s")
    if isinstance(found, (OSError, ValueError, HTTPException)):
        why = getattr(found, "reason", found)
        raise Unreachable(f"cannot read metrics: {why}", url=public_url(url)) from found
    if isinstance(found, Exception):
        raise found
    if "penstock_" not in found:
        raise NotFound(
            "found no metrics of Penstock: open penstock.observe.Prometheus in the program", url=public_url(url)
        )
    return found


def metrics(text: str) -> dict[str, dict[str, float]]:
    """Return the samples of an exposition by host or cache, with the time as ``at``; buckets by their bound."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: {"at": time()})
    for name, label, bound, value in _SAMPLE.findall(text):
        short = name.removeprefix("penstock_").removesuffix("_total")
        number, edge = _parse_float(value), _parse_float(bound or "0")
        # Of another program, or damaged: no count is negative, endless or a text.
        if 0 <= number < inf and edge >= 0:
            found[label][f"{short}<{edge!r}" if bound else short] = number
    return found


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def metrics_record(name: str, before: Mapping[str, float] | None, now: Mapping[str, float]) -> dict[str, Any]:
    old = before or {**now, "at": now["at"] - 1}
    elapsed_s = max(now["at"] - old["at"], 1e-9)
    kind = "cache" if any(each.startswith("cache_") for each in now) else "host"
    # Counts begin anew with their process.
    rates = {f"{each}_per_s": max(0.0, now.get(each, 0.0) - old.get(each, 0.0)) / elapsed_s for each in _COUNTS[kind]}
    head = "first_byte_seconds_bucket<"
    buckets = {float(each.removeprefix(head)): now[each] - old.get(each, 0.0) for each in now if each.startswith(head)}
    quantiles = {f"first_byte_p{share}_s": _quantile(buckets, share / 100) for share in (50, 99) if kind == "host"}
    return {kind: name, "seconds": elapsed_s, **rates, **quantiles}


def _quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return the bound of the bucket that reaches a share of all; None without any."""
    total = max(buckets.values(), default=0.0)
    return next((bound for bound in sorted(buckets) if buckets[bound] >= share * total), None) if total else None


def metrics_lines(row: Mapping[str, Any]) -> Iterator[str]:
    if "cache" in row:
        yield f"cache {row['cache']}"
        yield f"  reads     {row['cache_hits_per_s']:,.4g}/s served, {row['cache_misses_per_s']:,.4g}/s not there"
        yield f"  bytes     {readable(int(row['cache_hit_bytes_per_s']))}/s served"
        return
    yield row["host"]
    words = (("failed_requests", "failed"), ("throttled_requests", "throttled"), ("retried_requests", "again"))
    more = "".join(f", {row[f'{name}_per_s']:,.3g} {word}" for name, word in words if row[f"{name}_per_s"])
    yield f"  requests  {row['requests_per_s']:,.4g}/s{more}"
    received, sent = (readable(int(row[f"{name}_bytes_per_s"])) for name in ("received", "sent"))
    yield f"  bytes     {received}/s received, {sent}/s sent"
    if row["first_byte_p50_s"] is not None:
        bounds = ((share, row[f"first_byte_p{share}_s"] * 1e3) for share in (50, 99))
        # The last bucket has no upper bound.
        first = ", ".join(f"p{share} at most {bound:,.3g} ms" for share, bound in bounds if bound < inf)
        yield f"  first byte  {first or 'slower than the last bucket'}"
