"""Measures a user's own bucket beside the limits of this machine: list, read, write, decode, and what binds."""

from penstock.bench.machine import Machine
from penstock.bench.result import Result
from penstock.bench.run import BenchOptions, measure
from penstock.bench.verdict import binding

__all__ = ["BenchOptions", "Machine", "Result", "binding", "measure"]
