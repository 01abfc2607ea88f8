"""Each fault of a filesystem against each verb: the right result or the right error, and only whole objects."""

from __future__ import annotations

import errno
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import penstock as ps
from penstock.errors import PenstockError
from penstock.source import open_source
from penstock.values import Span

OLD, NEW = b"old" * 1000, b"new" * 1000
ATTEMPTS = 3
# What a filesystem raises, and what comes of it where it does so once and every time.
RAISED = {
    "reset": (lambda: ConnectionResetError(errno.ECONNRESET, "reset"), "✓", "Unreachable"),
    "timeout": (lambda: TimeoutError("no answer"), "✓", "TimedOut"),
    "io": (lambda: OSError(errno.EIO, "input/output error"), "✓", "Transient"),
    "denied": (lambda: PermissionError(errno.EACCES, "denied"), "Forbidden", "Forbidden"),
    "full": (lambda: OSError(errno.ENOSPC, "full"), "NoSpace", "NoSpace"),
    "unable": (NotImplementedError, "Unsupported", "Unsupported"),
    "wrong": (lambda: ValueError("what is this"), "Unusable", "Unusable"),
}
# fsspec's own isdir() swallows what a filesystem raises; what a filesystem cannot copy is read and written.
OTHERWISE = {
    ("denied", "put", "third"): "✓",
    ("full", "put", "third"): "✓",
    ("unable", "copy", "second"): "✓",
    ("unable", "copy", "third"): "✓",
}


class Faulty(MemoryFileSystem):
    """A filesystem that fails on demand, whichever of its methods is asked."""

    protocol = "faulty"
    cachable = False
    plan = ()
    lock = threading.Lock()

    def _meet(self):
        with self.lock:
            fault, *rest = Faulty.plan or (None,)
            Faulty.plan = rest
        if fault is not None:
            raise fault()


def _failing(name):
    original = getattr(MemoryFileSystem, name)

    def method(self, *arguments, **options):
        self._meet()
        return original(self, *arguments, **options)

    return method


for each in ("info", "ls", "find", "cat_file", "_open", "pipe_file", "cp_file", "_rm", "rm_file", "rm"):
    setattr(Faulty, each, _failing(each))


@pytest.fixture
def source():
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    MemoryFileSystem.store.clear()
    store = ps.StoreOptions(retry=ps.RetryOptions(base_s=0.001, cap_s=0.002, attempts=ATTEMPTS))
    source, _ = open_source("fsspec+faulty://bucket/", store)
    for key in ("key", "from"):
        source.publish(key, OLD)
    source.head("key")
    yield source
    Faulty.plan = ()
    MemoryFileSystem.store.clear()


def _write(source):
    with source.open_write("key") as file:
        file.write(NEW)


VERBS = {
    "head": lambda source: source.head("key").size == len(OLD),
    "list": lambda source: [each.key for page in source.pages("") for each in page.entries] == ["from", "key"],
    "read": lambda source: source.read(Span("key", 0, len(OLD))) == OLD,
    "range": lambda source: source.read(Span("key", 10, 20)) == OLD[10:20],
    "suffix": lambda source: source.read(Span("key", -10, None)) == OLD[-10:],
    "put": lambda source: _write(source) is None,
    "copy": lambda source: source.copy("from", "to") or True,
    "delete": lambda source: source.delete(["key"]) or True,
}
NEXT = {"put": {"key": (OLD, NEW)}, "copy": {"to": (None, OLD)}, "delete": {"key": (OLD, None)}}


@pytest.mark.parametrize("when", ["first", "second", "third", "always"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", RAISED)
def test_a_fault_and_a_verb(fault, verb, when, source):
    """It comes at the first, second or third call of the filesystem, or at all of them."""
    raised, once, ever = RAISED[fault]
    Faulty.plan = {
        "first": [raised],
        "second": [None, raised],
        "third": [None, None, raised],
        "always": [raised] * 1000,
    }[when]
    try:
        outcome = "✓" if VERBS[verb](source) else "wrong"
    except PenstockError as error:
        outcome = type(error).__name__
    unmet = len(Faulty.plan)
    Faulty.plan = ()
    if when == "always":
        assert (outcome, unmet < 1000) == (ever, True)
    elif unmet:  # the verb has fewer calls
        assert (outcome, when != "first") == ("✓", True)
    else:
        assert outcome == OTHERWISE.get((fault, verb, when), once)
    found = {path.rpartition("/")[2]: bytes(file.getbuffer()) for path, file in MemoryFileSystem.store.items()}
    allowed = {"key": (OLD,), "from": (OLD,), "to": (None,)} | (NEXT.get(verb, {}))
    if outcome == "✓":
        allowed |= {key: (values[1],) for key, values in NEXT.get(verb, {}).items()}
    assert set(found) <= set(allowed), "something was published that nobody wrote"
    assert all(found.get(key) in values for key, values in allowed.items())
    assert source.read(Span("from", 0, len(OLD))) == OLD, "and it goes on"
