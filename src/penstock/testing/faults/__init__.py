"""An object store that fails on demand, for tests of training programs: ``FaultServer``, with ``FAULTS`` to inject.

    from penstock.testing.faults import FAULTS, FaultServer, Match

    with FaultServer.start() as server:
        server.put("bucket", "key", b"bytes")
        server.fail(FAULTS["reset"], FAULTS["503"], when=Match(verb="get", key="key"))
        with ps.open("s3://bucket/key", store=server.store) as file:
            assert file.read() == b"bytes"
        assert [each.fault for each in server.seen("get")] == ["reset", "503", ""]

The server speaks S3, or the dialect that ``Settings(dialect=…)`` names. ``python -m penstock.testing.faults`` serves on
a port, for a training program that must not be changed.

A request in order: ``server`` receives it (``message``), asks ``script`` for a fault, and has its dialect check and
answer it (``dialect``; ``amazon``, ``google``, ``alibaba``, ``azure`` and ``hierarchical`` hold the differences); the
fault changes the answer, or breaks it off; ``server`` records the outcome.
"""

from __future__ import annotations

from penstock.testing.faults.script import FAULTS, VERBS, Fault, Match, Settings
from penstock.testing.faults.server import FaultServer, Seen

__all__ = ["FAULTS", "VERBS", "Fault", "FaultServer", "Match", "Seen", "Settings"]
