"""The process that ``FaultServer.start`` starts: ``python -m penstock.testing.faults.child DESCRIPTOR``."""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from penstock.testing.faults.server import attend

if __name__ == "__main__":
    # Ctrl-C is for the owner; when the owner ends, so does this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    attend(Connection(int(sys.argv[1])))
