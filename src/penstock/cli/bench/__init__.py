"""Benchmark of a user's bucket against the limits of this machine: list, read, write, decode, and the bottleneck."""

from penstock.cli.bench.machine import Machine
from penstock.cli.bench.result import Result
from penstock.cli.bench.run import BenchOptions, measure
from penstock.cli.bench.verdict import binding

__all__ = ["BenchOptions", "Machine", "Result", "binding", "measure"]
