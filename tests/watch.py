"""Says where the main thread stands in a test that takes long: faulthandler shows the youngest hundred threads only."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from time import monotonic, sleep

import pytest

LONG = 0.8  # of the time after which faulthandler ends the run


class Watch(threading.Thread):
    """Looks at the main thread now and then."""

    def __init__(self, descriptor, limit_s):
        super().__init__(name="watch", daemon=True)
        self.descriptor = descriptor
        self.long_s = LONG * limit_s
        self.test, self.since = "", monotonic()

    def run(self):
        told = ""
        while True:
            sleep(self.long_s / 50)
            if self.test and self.test != told and monotonic() > self.since + self.long_s:
                told = self.test
                stack = "".join(traceback.format_stack(sys._current_frames()[threading.main_thread().ident]))
                os.write(self.descriptor, f"\n{told} takes long; the main thread is here:\n{stack}".encode())


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # begun by a shell's `&`: tests of Ctrl-C would wait for ever
        signal.signal(signal.SIGINT, signal.default_int_handler)
    limit_s = float(config.getini("faulthandler_timeout"))
    config.watch = Watch(os.dup(2), limit_s)  # before output is captured
    if limit_s:  # 0 is for those who debug
        config.watch.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    watch = item.config.watch
    watch.since, watch.test = monotonic(), item.nodeid
    terminated = signal.getsignal(signal.SIGTERM)
    try:
        return (yield)
    finally:
        if terminated is not None:  # a handler that a test leaves would keep forked children of others alive
            signal.signal(signal.SIGTERM, terminated)
        watch.test = ""  # a worker process without tests waits for the others as long as they take
