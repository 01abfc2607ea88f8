"""What must come of each fault for each verb, as data; and the page made of it."""

from __future__ import annotations

from penstock.testing.faults import FAULTS
from tests.faults.cases import ATTEMPTS, COLUMNS, PLAIN, Case

_READS = ("read", "read of unknown size", "range", "batch")
_UPLOAD = ("put", "create", "part", "complete")


def _same(columns, outcome):
    return dict.fromkeys(columns, outcome)


# What comes of a fault that strikes once: for every verb, and for those that differ.
ONCE = {
    "reset": ("✓ 2", {}),
    "empty": ("✓ 2", {}),
    "idle": ("✓ 2", {}),
    "lost": ("✓ 2", {}),
    "reset-headers": ("✓ 2", {}),
    "reset-body": ("✓ 2", {}),
    "truncate": ("✓ 2", {}),
    # Without a length nobody can tell where an answer ends, but XML and known sizes can.
    "truncate-unsized": ("Damaged", _same(("read", "range", "batch"), "✓ 2") | {"complete": "✓ 1"}),
    "stall": ("✓ 2", {}),
    "stall-body": ("✓ 2", {}),
    "slow": ("✓ 1", {}),
    "drip": ("✓ 2", {}),
    "500": ("✓ 2", {}),
    "502": ("✓ 2", {}),
    "503": ("✓ 2", {}),
    "503-after": ("✓ 2", {}),
    "504": ("✓ 2", {}),
    "429": ("✓ 2", {}),
    "408": ("✓ 2", {}),
    # The answer to a HEAD has no body that could say why; only temporary credentials are renewed on suspicion.
    "expired": ("✓ 2", {"head": "Forbidden"}),
    "skewed": ("Unauthenticated", {"head": "Forbidden", "abort": "Left"}),
    "denied": ("Forbidden", {"abort": "Left"}),
    "301": ("✓ 2", {}),
    "307": ("✓ 2", {}),
    "malformed": ("✓ 2", {}),
    "error-200": ("✓ 2", {}),
    "longer": ("✓ 2", {"read": "Changed", "batch": "Changed", "range": "✓ 1"}),
    "shorter": (
        "Damaged",
        {"read": "Changed", "batch": "Changed", "range": "✓ 2", "read of unknown size": "✓ 2 or 3", "complete": "✓ 1"},
    ),
    "etag": (
        "Changed",
        {"put": "✓ 1", "part": "Conflict", "copy of a part": "Conflict", "complete": "✓ 1", "copy": "✓ 1"},
    ),
    # No store gives a checksum of a range; TLS is what protects it.
    "corrupt": ("✓ 2", {"range": "Unseen"}),
    "range-whole": ("✓ 2", {}),
    "range-200": ("✓ 1", {}),
    "range-other": ("Damaged", {}),
    "duplicate": ("✓ 1", {}),
    "garbage": ("Damaged", {"complete": "✓ 1"}),
    "headers": ("✓ 1", {}),
    "headers-many": ("✓ 2", {}),
    "headers-long": ("Damaged", {"put": "✓ 1", "complete": "✓ 1", "abort": "✓ 1"}),
}

# What comes of one that strikes every time: the error after three attempts, or what once is enough for.
ALWAYS = {
    "reset": ("Unreachable", {"abort": "Left"}),
    "empty": ("Unreachable", {"abort": "Left"}),
    # What took effect the first time is found to have done so the second time.
    "lost": ("Unreachable", {"put": "✓", "complete": "✓", "abort": "✓"}),
    "reset-headers": ("Unreachable", {"put": "✓", "complete": "✓", "abort": "✓"}),
    "reset-body": ("Unreachable", {"complete": "✓"}),
    "truncate": ("Unreachable", {"complete": "✓"}),
    "truncate-unsized": ("Damaged", _same(("read", "range", "batch"), "Truncated") | {"complete": "✓"}),
    "stall": ("TimedOut", {"abort": "Left"}),
    "stall-body": ("TimedOut", {"complete": "✓"}),
    "slow": ("✓", {}),
    "drip": ("TimedOut", {"put": "✓", "complete": "✓", "abort": "✓"}),
    "500": ("Transient", {"abort": "Left"}),
    "502": ("Transient", {"abort": "Left"}),
    "503": ("Throttled", {"abort": "Left"}),
    "503-after": ("Throttled", {"abort": "Left"}),
    "504": ("TimedOut", {"abort": "Left"}),
    "429": ("Throttled", {"abort": "Left"}),
    "408": ("TimedOut", {"abort": "Left"}),
    "expired": ("Unauthenticated", {"head": "Forbidden", "abort": "Left"}),
    "skewed": ("Unauthenticated", {"head": "Forbidden", "abort": "Left"}),
    "denied": ("Forbidden", {"abort": "Left"}),
    "error-200": ("Transient", {}),
    "longer": ("Unreachable", {"read": "Changed", "batch": "Changed", "range": "✓", "complete": "✓"}),
    "shorter": (
        "Damaged",
        {
            "read": "Changed",
            "batch": "Changed",
            "range": "Truncated",
            "read of unknown size": "ChecksumMismatch",
            "complete": "✓",
        },
    ),
    "etag": ("Changed", {"put": "✓", "part": "Conflict", "copy of a part": "Conflict", "complete": "✓", "copy": "✓"}),
    "corrupt": ("ChecksumMismatch", {"range": "Unseen"}),
    "range-whole": ("✓", {}),
    "range-200": ("✓", {}),
    "range-other": ("Damaged", {}),
    "duplicate": ("✓", {}),
    "garbage": ("Damaged", {"complete": "✓"}),
    "headers": ("✓", {}),
    "headers-many": ("Unreachable", {"put": "✓", "complete": "✓", "abort": "✓"}),
    "headers-long": ("Damaged", {"put": "✓", "complete": "✓", "abort": "✓"}),
}


# Where Google Cloud Storage differs: by fault and column, once and always. A move is settled by looking at the object,
# as a completion is; where it is not offered a copy takes its place. The stored size is known beside Content-Length.
_GOOGLE = {
    ("lost", "move"): ("✓ 2", "✓"),
    ("reset-headers", "move"): ("✓ 2", "✓"),
    ("reset-body", "move"): ("✓ 2", "✓"),
    ("truncate", "move"): ("✓ 2", "✓"),
    ("stall-body", "move"): ("✓ 2", "✓"),
    ("drip", "move"): ("✓ 2", "✓"),
    ("truncate-unsized", "move"): ("✓ 1", "✓"),
    ("truncate-unsized", "read of unknown size"): ("✓ 2", "Transient"),
    ("expired", "head"): ("✓ 2", "Unauthenticated"),
    ("denied", "move"): ("✓ 1", "✓"),
    ("longer", "read"): ("✓ 1", "✓"),
    ("longer", "batch"): ("✓ 1", "✓"),
    ("longer", "move"): ("✓ 2", "✓"),
    ("shorter", "read"): ("✓ 2 or 3", "Truncated"),
    ("shorter", "batch"): ("✓ 2 or 3", "Truncated"),
    ("shorter", "read of unknown size"): ("✓ 2 or 3", "Transient"),
    ("shorter", "move"): ("✓ 1", "✓"),
    # The request of a completion is not digested; over TLS it cannot happen on the way.
    ("corrupt", "complete"): ("Unusable", "Unusable"),
    ("garbage", "move"): ("✓ 1", "✓"),
    ("headers-many", "delete"): ("✓ 2", "✓"),
    ("headers-many", "move"): ("✓ 2", "✓"),
    ("headers-long", "move"): ("✓ 1", "✓"),
}
# Where Alibaba OSS differs.
_ALIBABA = {
    # As on Google Cloud Storage.
    ("corrupt", "complete"): ("Unusable", "Unusable")
}
_IN_BODY = ("reset-body", "truncate", "stall-body")
# Where Azure differs. The answers to writes and copies have no body; that to HEAD has the code in a header.
_AZURE = {
    **{(fault, column): ("✓ 1", "✓") for fault in _IN_BODY for column in ("copy", "copy of a part", "complete")},
    **{("truncate-unsized", column): ("✓ 1", "✓") for column in ("copy", "copy of a part")},
    **{("shorter", column): ("✓ 2", "Unreachable") for column in ("copy", "copy of a part")},
    ("shorter", "complete"): ("✓ 2", "✓"),
    ("garbage", "copy"): ("✓ 1", "✓"),
    ("expired", "head"): ("✓ 2", "Unauthenticated"),
    ("skewed", "head"): ("Unauthenticated", "Unauthenticated"),
    # The second answer is a 404, whose status is enough.
    ("headers-many", "delete"): ("✓ 2", "✓"),
}
# Where plain web servers differ: their answers have neither codes nor digests, and not each folder has an index page.
_BYTES = ("read", "read of unknown size", "batch")
_WEB = {
    **{
        (fault, column): ("Forbidden", "Forbidden")
        for fault in ("expired", "skewed")
        for column in (*_BYTES, "range", "suffix")
    },
    **{(fault, "list"): ("Unsupported", "Unsupported") for fault in ("expired", "skewed", "denied", "garbage")},
    **{("corrupt", column): ("Unseen", "Unseen") for column in _BYTES},
    ("shorter", "read of unknown size"): ("Unseen", "Unseen"),
}
ALIKE = {"replace": "put", "suffix": "range"}  # columns of which the same comes as of another
DIFFERENCES = {"s3": {}, "gcs": _GOOGLE, "oss": _ALIBABA, "azure": _AZURE, PLAIN: _WEB}


def expected(case: Case) -> str:
    """Return what must come of a case."""
    differs = DIFFERENCES[case.dialect].get((case.fault, case.column))
    if differs is not None:
        return differs[case.always]
    default, others = (ALWAYS if case.always else ONCE)[case.fault]
    return others.get(ALIKE.get(case.column, case.column), default)


def allowed(case: Case) -> list[str]:
    """Return the same as what it may be: how many tries can depend on when bytes that nobody announced arrive."""
    least, *more = expected(case).split(" or ")
    return [least, *(f"✓ {tries}" for tries in more)]


def cell(case: Case) -> str:
    """Return a case as the page shows it."""
    if not case.possible:
        return "-"
    outcome = expected(case)
    if outcome.startswith("✓ "):
        tries = outcome.removeprefix("✓ ")
        outcome = f"✓ {tries} {'try' if tries == '1' else 'tries'}"
    return outcome


def page() -> str:
    """Return docs/faults.md."""
    once, always = (_table(always=always) for always in (False, True))
    about = [f"| `{fault.name}` | {fault.about} |" for fault in FAULTS.values()]
    return _PAGE.format(
        once=once,
        always=always,
        about="\n".join(about),
        attempts=ATTEMPTS,
        unranged=_unranged(),
        google=_differences("gcs"),
        alibaba=_differences("oss"),
        azure=_differences("azure"),
        web=_differences(PLAIN),
    )


def _table(*, always: bool) -> str:
    lines = [f"| fault | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for fault in FAULTS:
        cases = [Case(fault, column, always) for column in COLUMNS]
        if any(case.possible for case in cases):
            lines.append(f"| `{fault}` | {' | '.join(map(cell, cases))} |")
    return "\n".join(lines)


def _differences(dialect: str) -> str:
    rows = [
        f"| `{fault}` | {column} | {' | '.join(_shown(fault, column, always, dialect) for always in (False, True))} |"
        for fault, column in DIFFERENCES[dialect]
    ]
    return "\n".join(["| fault | request | once | every time |", "|---|---|---|---|", *rows])


def _shown(fault: str, column: str, always: bool, dialect: str) -> str:  # noqa: FBT001  a coordinate
    return cell(Case(fault, column, always, dialect))


# How an object is read from a server that ignores Range, and bounds: what the server sends, and the memory that is
# taken beside what is returned, as shares of the object.
UNRANGED = {
    "`ps.open(url).read()`": (1.2, 0.2),
    "`for line in ps.open(url)`": (1.2, 1.25),
    "`ps.load(url)` of a checkpoint": (1.2, 1.2),
}


def _unranged():
    rows = [f"| {way} | {sent} | {memory} |" for way, (sent, memory) in UNRANGED.items()]
    return "\n".join(["| read | bytes sent, at most | memory beside the result, at most |", "|---|---|---|", *rows])


_PAGE = """# Faults

What Penstock does when the network or the store goes wrong. This page is written by `tests/faults/test_table.py`, which
plants each fault in a server and tries each verb against it: a cell here is a test there.

`✓ 2 tries` is the right result after two requests. A name is the class of the error that is raised
(`penstock.errors`); what stood in the bucket is untouched then, or wholly replaced where only the answer was lost.
`-`: it cannot happen to this request. *suffix* is a read of an object's last bytes (`Range: bytes=-n`).
*replace* is a put on the condition that a certain version is there (`If-Match`).
*create*, *part*, *complete* and *abort* are the steps of a multipart upload; a *copy of a part* is the step in place of
*part* where a long object is copied within its bucket.

- `Left`: the upload could not be aborted. It is invisible, and the store holds its parts until they are removed.
- `Unseen`: a client cannot tell. The store gives no digest of what it sent, and the answer contradicts itself nowhere;
  over TLS it cannot happen on the way.

## A fault that strikes once

{once}

## A fault that strikes every time

After {attempts} attempts here; by default Penstock goes on for two minutes (`RetryOptions`).

{always}

## Google Cloud Storage

The same faults against `gs://`, with the same results but for these. A *move* is the last step of a large object that
is written on a condition. Regions (`301`, `307`, `malformed`) and copies of parts do not exist there.

{google}

## Alibaba OSS

The same table holds for Alibaba OSS (`Settings(dialect="oss")`), where these cells differ:

{alibaba}

## Azure Blob Storage

The same faults against `az://`, with the same results but for these. Uploads are begun and aborted without a request,
so the columns *create* and *abort* do not exist there, nor do regions (`301`, `307`, `malformed`). Azure itself deletes
the blocks that an interrupted upload leaves.

{azure}

## Web servers

The same faults against `http://` and `https://`, whose servers are read only: the columns *head*, *list*, *read*,
*read of unknown size*, *range*, *suffix* and *batch*, with the same results but for these.

{web}

## A server that ignores Range

Every range is answered with the whole object, as by `range-whole` each time. Figures are shares of the object, here of
80 MiB, and memory is without the eight blocks of 4 MiB that an open file holds at most; an object that is read in
pieces and larger than `ReadOptions.ahead_bytes` (256 MiB) is refused (`Unusable`).

{unranged}

## Simulation

`make simulate` runs scenarios of a few operations over a simulated store, in virtual time: the real code above libcurl,
with latencies, faults, other writers and kills drawn from a seed. After each operation it compares the result with the
versions that the store has had. A seed that breaks a promise is made small and printed as a trace:

```text
plan 738 azure - deaf,split,writer 1:shards
t=0.002087 #1 list ?comp=list&prefix=shards%2Ftar%2F -> 200
t=0.070923 another writer: new shards/tar/0.tar
t=0.197948 #2 get shards/tar/0.tar bytes=1-4096 -> 206
```

Simulated are files, ranges, listings, writes in parts and with conditions, copies, the cache, tar and zip shards, token
files, checkpoints and jobs, in the dialects of S3, Google, OSS and Azure; also several processes at once that share a
cache, a node's file or a job, and are killed. libcurl, disks and loaders' threads are not: tests with real servers
cover them.

## What the faults are

| fault | what happens |
|---|---|
{about}

## Your own training against them

The server is part of Penstock. In a test:

```python
import penstock as ps
from penstock.testing.faults import FAULTS, FaultServer, Match

with FaultServer.start() as server:
    server.put("bucket", "key", b"bytes")
    server.fail(FAULTS["reset"], FAULTS["503"], when=Match(verb="get", key="key"))
    with ps.open("s3://bucket/key", store=server.store) as file:
        assert file.read() == b"bytes"
    assert [each.fault for each in server.seen("get")] == ["reset", "503", ""]
```

Or beside a training that is to be left as it is: one request in a hundred goes wrong.

```bash
python -m penstock.testing.faults --rate 0.01 --faults reset,503,truncate
```

The server speaks S3, or another store's dialect: `Settings(dialect="gcs")`, `--dialect gcs`.
Others are `oss`, `azure`, and `azure-hns`, an Azure account with a hierarchical namespace.
"""
