"""``close`` during the handling of an exception: it publishes in an ``except`` clause, not while one propagates."""

import asyncio
import contextlib
import io

import fsspec
import pytest

from penstock.errors import Forbidden, NotFound
from penstock.source import Source
from penstock.stores.urls import parse
from penstock.testing.servers import reply
from penstock.values import Span
from tests.children import python
from tests.engine.write.uploads import PART, Uploads, say, writing
from tests.servers.hostile import document


class _Stop(Exception):
    """Any exception of a program."""


def _in_except(file):
    try:
        raise _Stop
    except _Stop:
        file.close()


def _in_bare_except(file):
    try:
        raise _Stop
    except:  # noqa: E722  the case
        file.close()


def _in_second_clause(file):
    try:
        raise _Stop
    except KeyError:
        raise
    except (ValueError, _Stop) as error:
        if isinstance(error, _Stop):
            file.close()
    finally:
        file.__class__  # noqa: B018  a second handler


def _in_group_clause(file):
    try:
        raise ExceptionGroup("all", [_Stop()])
    except* _Stop:
        file.close()


def _in_a_call(file):
    def finish():
        with contextlib.nullcontext():
            file.close()

    try:
        raise _Stop
    except _Stop:
        finish()


def _behind_an_inner_handler(file):
    try:
        raise _Stop
    except _Stop:
        with contextlib.suppress(KeyError):
            raise KeyError from None
        try:
            assert file
        finally:
            file.close()


def _in_a_block_in_except(file):
    try:
        raise _Stop
    except _Stop:
        with contextlib.closing(file), contextlib.ExitStack() as leave:
            leave.callback(file.tell)


def _in_a_text_wrapper(file):
    try:
        raise _Stop
    except _Stop:
        with io.TextIOWrapper(file) as text:
            text.write("more")


def _before_it_goes_on(file):
    with contextlib.suppress(_Stop):
        try:
            raise _Stop
        except _Stop:
            file.close()
            raise


def _at_the_end_of_an_iterator(file):
    class Tee:
        def __iter__(self):
            return self

        def __next__(self):
            try:
                return next(iter(()))
            except StopIteration:
                file.close()
                raise

    assert list(Tee()) == []


def _in_a_generator(file):
    def wait():
        try:
            yield
        except _Stop:
            file.close()

    waiting = wait()
    next(waiting)
    with contextlib.suppress(StopIteration):
        waiting.throw(_Stop())


def _in_a_coroutine(file):
    async def close():
        try:
            raise _Stop
        except _Stop:
            await asyncio.sleep(0)
            file.close()

    asyncio.run(close())


HANDLED = [
    *(_in_except, _in_bare_except, _in_second_clause, _in_group_clause, _in_a_call, _behind_an_inner_handler),
    *(_in_a_block_in_except, _in_a_text_wrapper, _before_it_goes_on, _at_the_end_of_an_iterator, _in_a_generator),
    _in_a_coroutine,
]


@pytest.mark.parametrize("close", HANDLED)
def test_a_handled_exception_does_not_keep_close_from_publishing(close):
    source = Source(parse("memory://bucket/key"))
    file = source.open_write(close.__name__)
    file.write(b"data")
    close(file)
    assert source.read(Span(close.__name__, 0, 4)) == b"data"


def test_close_in_except_raises_the_error_of_a_write_that_was_let_pass():
    with writing(Uploads(part=say(reply(403, document("Error", Code="AccessDenied"))))) as writer:
        with contextlib.suppress(Forbidden):
            while True:
                writer.write(bytes(PART))
        try:
            raise _Stop
        except _Stop:
            with pytest.raises(Forbidden):
                writer.close()


def _out_of_finally_of_a_coroutine(file):
    async def close():
        try:
            raise _Stop
        finally:
            await asyncio.sleep(0)
            file.close()

    asyncio.run(close())


def _out_of_a_context_manager(file):
    @contextlib.contextmanager
    def manage():
        try:
            yield
        finally:
            file.close()

    with manage():
        raise _Stop


def _out_of_an_unmatched_clause(file):
    try:
        raise _Stop
    except KeyError:
        pass
    finally:
        with contextlib.suppress(OSError):
            file.close()


def _out_of_a_clause_that_raises(file):
    try:
        raise KeyError
    except KeyError:
        raise _Stop from None
    finally:
        file.close()


UNHANDLED = [_out_of_finally_of_a_coroutine, _out_of_a_context_manager]
UNHANDLED += [_out_of_an_unmatched_clause, _out_of_a_clause_that_raises]


@pytest.mark.parametrize("leave", UNHANDLED)
def test_a_propagating_exception_keeps_close_from_publishing(leave):
    source = Source(parse("memory://bucket/key"))
    with pytest.raises(_Stop) as caught:
        leave(source.open_write(leave.__name__))
    assert "nothing was published" in caught.value.__notes__[0]
    with pytest.raises(NotFound):
        source.head(leave.__name__)


class TestAsynchronousFiles:
    """The thread that publishes sees no exception of the caller's."""

    def test_close_in_finally_publishes_nothing(self):
        files = fsspec.filesystem("penstock")

        async def write():
            file = await files.open_async("memory://async/key", "wb")
            try:
                await file.write(b"half")
                raise _Stop
            finally:
                await file.close()

        with pytest.raises(_Stop):
            asyncio.run(write())
        assert not files.exists("memory://async/key")

    def test_close_in_except_publishes(self):
        files = fsspec.filesystem("penstock")

        async def write():
            file = await files.open_async("memory://async/whole", "wb")
            try:
                raise _Stop
            except _Stop:
                await file.write(b"whole")
                await file.close()

        asyncio.run(write())
        assert files.cat("memory://async/whole") == b"whole"


def test_a_file_of_a_transaction_closed_while_an_exception_propagates_is_not_published():
    files = fsspec.filesystem("penstock")

    def write():
        file = files.open("memory://transaction/half", "wb")
        try:
            file.write(b"half")
            raise _Stop
        finally:
            file.close()

    with files.transaction:
        with contextlib.suppress(_Stop):
            write()
        try:
            raise _Stop
        except _Stop:
            with files.open("memory://transaction/whole", "wb") as file:
                file.write(b"whole")
    assert files.find("memory://transaction") == ["memory://transaction/whole"]


@pytest.mark.parametrize("mode", ["w", "wb"])
@pytest.mark.parametrize("end", ["dropped", "left"])
def test_an_unclosed_file_is_logged(tmp_path, mode, end):
    keep = "file = " if end == "left" else ""
    done = python(f"import penstock as ps\n{keep}ps.open({str(tmp_path / 'key')!r}, {mode!r})")
    assert done.returncode == 0
    assert f"a file was {end} unclosed: nothing was published; use 'with ps.open(url, mode) as file'" in done.stderr
    assert done.stderr.count("a file was") == 1
    assert str(tmp_path / "key") in done.stderr
    assert [*tmp_path.iterdir()] == []
