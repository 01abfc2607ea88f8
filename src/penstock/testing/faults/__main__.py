"""A fault server on a port, with a log: ``python -m penstock.testing.faults --rate 0.01 --faults reset,503``."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import TYPE_CHECKING

from penstock.testing.faults.dialect import DIALECTS, find_words
from penstock.testing.faults.script import FAULTS, Match, Settings
from penstock.testing.faults.server import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.faults.server import Seen


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C; return the exit status."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        _say(*(f"{fault.name:17} {fault.about}" for fault in FAULTS.values()))
        return 0
    settings = Settings(dialect=asked.dialect, port=asked.port, latency_ms=asked.latency_ms)
    words = find_words(settings.dialect)
    try:
        engine = Engine(settings, _log)
    except OSError as error:
        sys.stderr.write(f"cannot listen on 127.0.0.1:{asked.port}: {error.strerror}\n")
        return 1
    for bucket in asked.bucket:
        engine.make(bucket)
    if asked.rate:
        for number, fault in enumerate(asked.faults):
            share = asked.rate / (len(asked.faults) - number * asked.rate)  # rules apply one after another
            engine.fail((fault,), Match(times=None, rate=share, seed=asked.seed + number))
    environment = words.environment(settings, f"http://127.0.0.1:{engine.port()}")
    _say(
        *(f"export {name}={value}" for name, value in environment.items()),
        f"# serving {', '.join(f'{words.scheme}://{bucket}/' for bucket in asked.bucket)} from memory until Ctrl-C",
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        engine.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testing.faults",
        description="An object store on loopback, in memory, that goes wrong at a given rate. Logs every fault.",
    )
    parser.add_argument("--dialect", choices=DIALECTS, default="s3", help="what it speaks (default s3)")
    parser.add_argument("--port", type=int, default=0, help="where to listen (default: any that is free)")
    parser.add_argument("--bucket", action="append", default=["bucket"], help="also make this bucket; repeatable")
    parser.add_argument("--rate", type=_rate, default=0.01, help="share of requests that fail (default 0.01)")
    parser.add_argument(
        "--faults", type=_faults, default=_faults("reset,503,truncate"), help="names, with commas between"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws which requests fail")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="before the first byte of each answer")
    parser.add_argument("--list", action="store_true", help="say what can go wrong, and end")
    return parser


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 <= rate <= 1:
        raise argparse.ArgumentTypeError("a share is between 0 and 1")
    return rate


def _faults(text: str) -> list[object]:
    unknown = [name for name in text.split(",") if name not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(unknown)}; known: {', '.join(FAULTS)}")
    return [FAULTS[name] for name in text.split(",")]


def _log(seen: Seen) -> None:
    if seen.fault or seen.status >= 300:  # noqa: PLR2004  successes are not logged
        span = seen.headers.get("range", "")
        _say(f"{seen.number:7} {seen.verb:8} {seen.bucket}/{seen.key} {span} {seen.fault} {seen.status} {seen.outcome}")


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
