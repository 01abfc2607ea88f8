"""Benchmark of a user's bucket against the limits of this machine: list, read, write, decode, and the bottleneck.

``run.measure`` does the steps in order; ``limits`` has the machine, the result of a step, and its bottleneck.
"""

from penstock.cli.bench.limits import Machine, Result, binding, epoch
from penstock.cli.bench.run import BenchOptions, measure

__all__ = ["BenchOptions", "Machine", "Result", "binding", "epoch", "measure"]
