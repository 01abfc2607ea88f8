"""Calls that keep what they are told, for tests that stand where the fetch engine does."""

from __future__ import annotations

import threading
from collections import deque

from penstock.engine.contracts.exchange import Request
from penstock.engine.transport.session import Mailbox
from penstock.testing.servers import reply

WAIT_S = 60


class Once:
    """A call for one request; ``wait`` returns its response. ``delays`` asks for further attempts."""

    def __init__(self, request, delays=()):
        self._request = request
        self._delays = list(delays)
        self._over = threading.Event()
        self.attempts = 0
        self.responses = []

    def request(self):
        self.attempts += 1
        if isinstance(self._request, BaseException):
            raise self._request
        return self._request() if callable(self._request) else self._request

    def done(self, response):
        self.responses.append(response)
        if self._delays:
            return self._delays.pop(0)
        self._over.set()
        return None

    def over(self):
        return self._over.is_set()

    def wait(self, limit_s=WAIT_S):
        assert self._over.wait(limit_s), "the call never ended"
        return self.responses[-1]


class Breaking(Once):
    """A call that raises when it is told of its first response."""

    def done(self, response):
        if not self.responses:
            self.responses.append(response)
            raise ZeroDivisionError("oops")
        return super().done(response)


def answering(answer):
    """Return a script that says this, whatever is asked."""
    return lambda _received, send: send(answer) or True


def get(url, target=None, **more):
    return Once(Request("GET", url, target=target, **more))


def carry(session, *calls):
    session.submit(calls)
    return [call.wait() for call in calls]


hello = answering(reply(200, b"hello"))


class Gate:
    """A script that answers when it is told to."""

    def __init__(self):
        self.asked = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, received, send):
        self.asked.release()
        assert self.opened.wait(60)
        return hello(received, send)


def mailbox():
    """Return the mailbox of an I/O thread that carries nothing, and room for three requests."""
    return Mailbox(lambda: None, deque(), 3)
