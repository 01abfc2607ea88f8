"""Says where the main thread stands in a test that takes long: faulthandler shows the youngest hundred threads only."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from time import monotonic, sleep

LONG_S = 240.0  # faulthandler ends the run after 300
LOOK_S = 5.0


class Watch(threading.Thread):
    """Looks at the main thread now and then."""

    def __init__(self, descriptor):
        super().__init__(name="watch", daemon=True)
        self.descriptor = descriptor
        self.test, self.since = "", monotonic()

    def run(self):
        told = ""
        while True:
            sleep(LOOK_S)
            if self.test and self.test != told and monotonic() > self.since + LONG_S:
                told = self.test
                stack = "".join(traceback.format_stack(sys._current_frames()[threading.main_thread().ident]))
                os.write(self.descriptor, f"\n{told} takes long; the main thread is here:\n{stack}".encode())


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # begun by a shell's `&`: tests of Ctrl-C would wait for ever
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.watch = Watch(os.dup(2))  # before output is captured
    config.watch.start()


def pytest_runtest_protocol(item):
    item.config.watch.since = monotonic()
    item.config.watch.test = item.nodeid
