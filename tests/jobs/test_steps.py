"""What a task awaits: each verb brings its result, or raises where it is awaited."""

from __future__ import annotations

import threading

import pytest

from penstock.errors import Bug, NotFound
from penstock.events import Committed, subscribe
from penstock.jobs import steps
from penstock.source import open_source
from penstock.values import Span
from tests.jobs.carry import carry


@pytest.fixture
def source(request):
    return open_source(f"memory://{request.node.name}/")[0]


def test_verbs_follow_one_another_in_one_task(source):
    async def work():
        with pytest.raises(NotFound):
            await steps.head(source, "a")
        await steps.put(source, "a", b"data", metadata={"of": "me"}, content_type="text/plain")
        found = await steps.head(source, "a")
        await steps.copy(source, found, "b")
        await steps.delete(source, "a")
        assert await steps.read(source, Span("b", 1, 3)) == b"at"
        with pytest.raises(NotFound):
            await steps.read(source, Span("a", 0, 1))
        return found

    found = carry(work())
    assert (found.size, found.content_type, found.metadata["of"]) == (4, "text/plain", "me")


def test_an_object_without_a_type_gets_the_options_and_its_writing_is_an_event(source):
    seen = []
    stop = subscribe(seen.append)
    try:
        etag = carry(steps.put(source, "a", b"data", metadata={}, content_type=""))
    finally:
        stop()
    assert source.head("a").content_type == source.options.write.content_type
    (told,) = (each for each in seen if isinstance(each, Committed))
    assert (told.url, told.size_bytes, told.etag) == (source.url("a"), 4, etag)


def test_blocking_call_runs_on_another_thread_and_raises_its_errors():
    async def work():
        with pytest.raises(NotFound):
            await steps.run_blocking(_raise, NotFound("no"))
        with pytest.raises(Bug, match="unexpected ValueError"):
            await steps.run_blocking(_raise, ValueError("no"))
        return await steps.run_blocking(threading.get_ident)

    assert carry(work()) != threading.get_ident()


def _raise(error):
    raise error
