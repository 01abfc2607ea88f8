"""A server of made-up tar shards, 30 ms an answer: ``members.py MEMBERS BYTES``; prints its port, then what it sent.

Every shard has the same bytes, made once; any key names one. Ends when its standard input does.
"""

import asyncio
import io
import re
import sys
import tarfile

LATE_S = 0.03
RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d+)", re.IGNORECASE)


def shard(members, size):
    """Return a tar file of ``members`` samples of one member each."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(members):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    return file.getvalue()


class Answers(asyncio.Protocol):
    """Answers HEAD and GET, one request after another; the bytes of all bodies are added up."""

    def __init__(self, body, sent):
        """Serve ``body``, and add the number of bytes to ``sent[0]``."""
        self._body, self._sent, self._read = memoryview(body), sent, b""

    def connection_made(self, transport):
        """Keep the connection."""
        self._transport = transport

    def data_received(self, data):
        """Answer each whole request after ``LATE_S``."""
        self._read += data
        while b"\r\n\r\n" in self._read:
            head, _, self._read = self._read.partition(b"\r\n\r\n")
            asyncio.get_running_loop().call_later(LATE_S, self._answer, head)

    def _answer(self, head):
        size, found = len(self._body), RANGE.search(head)
        start, stop = (int(found[1]), min(size, int(found[2]) + 1)) if found else (0, size)
        lines = [f"HTTP/1.1 {'206 Partial Content' if found else '200 OK'}", 'ETag: "made-up"', "Accept-Ranges: bytes"]
        lines += [f"Content-Range: bytes {start}-{stop - 1}/{size}"] if found else []
        self._transport.write("\r\n".join([*lines, f"Content-Length: {stop - start}", "", ""]).encode())
        if not head.startswith(b"HEAD"):
            self._transport.write(self._body[start:stop])
            self._sent[0] += stop - start


async def main(members, size):
    """Serve until the standard input ends."""
    body, sent, loop = shard(members, size), [0], asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answers(body, sent), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], len(body), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(sent[0], flush=True)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
