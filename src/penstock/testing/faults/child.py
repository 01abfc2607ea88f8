"""The process that ``FaultServer.start`` starts: ``python -m penstock.testing.faults.child DESCRIPTOR``."""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from penstock.testing.faults.server import attend

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, whose end ends this
    attend(Connection(int(sys.argv[1])))
