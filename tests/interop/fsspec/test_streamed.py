"""Files whose reads and writes are awaited."""

from __future__ import annotations

import asyncio
import io
import uuid

import pytest

from penstock.errors import AlreadyExists, NotFound, Unusable
from penstock.interop.fsspec import PenstockFileSystem


@pytest.fixture
def root():
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def fs():
    return PenstockFileSystem(asynchronous=True)


def test_streamed_write_is_read_back_asynchronously(fs, root):
    async def main():
        async with await fs.open_async(f"{root}/k", "wb") as file:
            assert await file.write(b"0123456789") == 10
            assert file.tell() == 10
        async with await fs.open_async(f"{root}/k") as file:
            assert (file.size, await file.read(4), file.tell()) == (10, b"0123", 4)
            file.seek(-2, io.SEEK_END)
            assert (await file.read(), await file.read()) == (b"89", b"")
        with pytest.raises(Unusable, match="closed"):
            await file.read()

    asyncio.run(main())


def test_in_a_transaction_a_file_is_published_at_its_end(fs, root):
    async def main():
        with fs.transaction:
            async with await fs.open_async(f"{root}/k", "wb") as file:
                await file.write(b"0123456789")
            assert not await fs._exists(f"{root}/k")
        assert await fs._cat_file(f"{root}/k") == b"0123456789"
        with pytest.raises(RuntimeError), fs.transaction:
            async with await fs.open_async(f"{root}/k", "wb") as file:
                await file.write(b"another")
            raise RuntimeError
        assert await fs._cat_file(f"{root}/k") == b"0123456789"

    asyncio.run(main())


def test_a_file_that_is_left_by_an_error_is_not_published(fs, root):
    async def main():
        with pytest.raises(RuntimeError):
            async with await fs.open_async(f"{root}/k", "wb") as file:
                await file.write(b"half")
                raise RuntimeError
        assert not await fs._exists(f"{root}/k")
        await fs._pipe_file(f"{root}/k", b"1")
        with pytest.raises(AlreadyExists):
            await fs.open_async(f"{root}/k", "xb")
        with pytest.raises(NotFound):
            await fs.open_async(f"{root}/none")
        for mode in ("r", "ab"):
            with pytest.raises(Unusable):
                await fs.open_async(f"{root}/k", mode)

    asyncio.run(main())
