"""Keywords of writes and copies: stored or refused, never lost."""

import asyncio
from functools import partial

import fsspec
import pytest

import penstock as ps
from penstock.errors import Unsupported

URL = "memory://options/key"
FILES = fsspec.filesystem("penstock")


def _open(mode, data, **options):
    with FILES.open(URL, mode, **options) as file:
        file.write(data)


def _pipe_in_a_transaction(**options):
    with FILES.transaction:
        FILES.pipe_file(URL, b"data", **options)


def _open_async(**options):
    async def write():
        async with await FILES.open_async(URL, "wb", **options) as file:
            await file.write(b"data")

    asyncio.run(write())


WRITES = {
    "open": partial(_open, "wb", b"data"),
    "open text": partial(_open, "w", "data"),
    "pipe_file": partial(FILES.pipe_file, URL, b"data"),
    "pipe": partial(FILES.pipe, URL, b"data"),
    "pipe in a transaction": _pipe_in_a_transaction,
    "put_file": partial(FILES.put_file, __file__, URL),
    "put": partial(FILES.put, __file__, URL),
    "open_async": _open_async,
}
CALLS = WRITES | {
    "cp_file": partial(FILES.cp_file, f"{URL}-source", URL),
    "copy": partial(FILES.copy, f"{URL}-source", URL),
    "open to read": partial(FILES.open, f"{URL}-source", "rb"),
}


@pytest.fixture(autouse=True)
def _objects():
    ps.delete(URL)
    FILES.pipe_file(f"{URL}-source", b"source")


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(("metadata", "kind"), [("metadata", "content_type"), ("Metadata", "ContentType")])
def test_a_write_stores_metadata_and_content_type(write, metadata, kind):
    write(**{metadata: {"a": "1"}, kind: "image/png"})
    found = ps.stat(URL)
    assert found.metadata["a"] == "1"
    assert found.content_type == "image/png"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "name", ["ServerSideEncryption", "StorageClass", "ACL", "acl", "attributes", "version_id", "x"]
)
def test_an_option_that_would_be_lost_is_refused(call, name):
    with pytest.raises(Unsupported, match=f"no option {name}: leave it out"):
        call(**{name: "value"})
    assert not FILES.exists(URL)


def test_metadata_of_a_copy_is_refused():
    with pytest.raises(Unsupported, match="no option metadata"):
        FILES.cp_file(f"{URL}-source", URL, metadata={"a": "1"})


def test_an_attribute_given_twice_is_refused():
    with pytest.raises(Unsupported, match="given twice: metadata, Metadata"):
        FILES.pipe_file(URL, b"data", metadata={"a": "1"}, Metadata={"a": "2"})
