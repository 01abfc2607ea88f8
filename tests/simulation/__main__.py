"""Command line: ``python -m tests.simulation [FIRST] [--seconds 120]`` tries seeds until the time is over."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.simulation.plan import Plan, make, read
from tests.simulation.run import OPERATIONS, execute, pairs, shrink

_CHOICE = 4


def _rarity(plan: Plan, met: Counter[tuple[str, str]]) -> float:
    its = pairs(plan)
    return sum(1 / (1 + met[each]) for each in its) / len(its) if its else 0.0


def main() -> int:
    """Try seeds; print each that breaks a promise, made small."""
    parser = argparse.ArgumentParser(description="Run Penstock over a simulated store, in virtual time.")
    parser.add_argument("begin", type=int, nargs="?", default=time.time_ns() // 1000 % 10**9, help="first seed")
    parser.add_argument("--seeds", type=int, default=10**9, help="number of seeds")
    parser.add_argument("--seconds", type=float, default=120.0, help="stop after this time")
    parser.add_argument("--trace", action="store_true", help="print the trace of each run")
    parser.add_argument("--first", dest="stops", action="store_true", help="stop at the first that fails")
    parser.add_argument("--only", nargs="+", choices=sorted(OPERATIONS), default=None, help="operations to choose from")
    parser.add_argument("--plan", default="", help="run this plan, as a failure names it, in place of seeds")
    asked = parser.parse_args()
    # Thousands of warnings of slow stores.
    logging.disable(logging.ERROR)
    if asked.plan:
        result = execute(read(asked.plan))
        print(result)
        return result.error is not None
    began, failed, met, done, requests = time.monotonic(), [], Counter(), 0, 0
    operations, seed = tuple(asked.only or OPERATIONS), asked.begin
    while done < asked.seeds and time.monotonic() - began < asked.seconds:
        # Of a few seeds, the one whose features have met least so far.
        plans = [make(each, operations) for each in range(seed, seed + min(_CHOICE, asked.seeds))]
        plan = max(plans, key=lambda plan: _rarity(plan, met))
        seed += len(plans)
        result = execute(plan)
        done += 1
        requests += result.requests
        met.update(pairs(result.plan))
        if asked.trace:
            print(*result.lines, sep="\n")
        if result.error is not None:
            failed.append(plan.seed)
            print(shrink(result), flush=True)
            if asked.stops:
                break
    took_s = time.monotonic() - began
    print(
        f"{done} seeds from {asked.begin} in {took_s:.0f} s: {done / took_s * 3600:,.0f} an hour, {requests} requests"
    )
    rarest = sorted(met.items(), key=lambda each: each[1])[:5]
    print(f"{len(met)} pairs of features met; the rarest: {', '.join(f'{a} with {b} {n}' for (a, b), n in rarest)}")
    print(f"{len(failed)} failed: {failed[:20]}" if failed else "all promises were kept")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
