"""An object store that goes wrong on demand, to test a training against: ``FaultServer``, with ``FAULTS`` to plant.

    from penstock.testing.faults import FAULTS, FaultServer, Match

    with FaultServer.start() as server:
        server.put("bucket", "key", b"bytes")
        server.fail(FAULTS["reset"], FAULTS["503"], when=Match(verb="get", key="key"))
        with ps.open("s3://bucket/key", store=server.store) as file:
            assert file.read() == b"bytes"
        assert [each.fault for each in server.seen("get")] == ["reset", "503", ""]

It speaks S3, or the dialect that ``Settings(dialect=…)`` names. ``python -m penstock.testing.faults`` serves on a port,
for a training that is to be left as it is.
"""

from __future__ import annotations

from penstock.testing.faults.engine import Seen
from penstock.testing.faults.kinds import FAULTS, VERBS, Fault
from penstock.testing.faults.script import Match
from penstock.testing.faults.server import FaultServer
from penstock.testing.faults.settings import Settings

__all__ = ["FAULTS", "VERBS", "Fault", "FaultServer", "Match", "Seen", "Settings"]
