"""``keys.py COUNT``: a bucket of COUNT keys that are made up, on a free port that it prints; 30 ms before each page.

It speaks as much of S3 (ListObjectsV2), and of Google's JSON API, as listing takes. It ends with its standard input.
"""

import asyncio
import bisect
import json
import sys
from urllib.parse import parse_qs, urlsplit

KEY = "flat/{:08}.jpg"
LATE_S = 0.03
_ENTRY = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;{at:032x}&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
_ITEM = '{{"name":"{key}","size":"{size}","storageClass":"STANDARD"}}'


def size(at):
    """Bytes of an object: six digits, so that all entries are equally long."""
    return 100_000 + at * 7919 % 900_000


class Keys:
    """Pages of a bucket, cut from one string."""

    def __init__(self, count):
        self.count = count
        self._forms = {}

    def _rows(self, form, start, stop):
        if form not in self._forms:
            width = len(form.format(key=KEY.format(0), at=0, size=size(0)))
            whole = "".join(form.format(key=KEY.format(at), at=at, size=size(at)) for at in range(self.count))
            self._forms[form] = whole.encode(), width
        whole, width = self._forms[form]
        return whole[start * width : stop * width]

    def _after(self, key):
        return bisect.bisect_right(range(self.count), key, key=KEY.format) if key else 0

    def s3(self, asked):
        after = asked.get("continuation-token") or asked.get("start-after", "")
        start = self._after(after)
        stop = min(self.count, start + int(asked.get("max-keys", 1000)))
        more = f"<NextContinuationToken>{KEY.format(stop - 1)}</NextContinuationToken>" if stop < self.count else ""
        encoding = "<EncodingType>url</EncodingType>" if "encoding-type" in asked else ""
        head = (
            '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>bucket</Name><Prefix>{asked.get('prefix', '')}</Prefix><MaxKeys>1000</MaxKeys>{encoding}"
            f"<KeyCount>{stop - start}</KeyCount><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}"
        )
        return b"".join((head.encode(), self._rows(_ENTRY, start, stop), b"</ListBucketResult>"))

    def google(self, asked):
        start = self._after(asked.get("pageToken", ""))
        first = asked.get("startOffset", "")
        start = max(start, bisect.bisect_left(range(self.count), first, key=KEY.format))
        end = asked.get("endOffset", "")
        stop = bisect.bisect_left(range(self.count), end, key=KEY.format) if end else self.count
        page = max(start, min(stop, start + min(5000, int(asked.get("maxResults", 1000)))))
        rows = self._rows(_ITEM + ",", start, page)[:-1]
        more = f',"nextPageToken":{json.dumps(KEY.format(page - 1))}' if page < stop else ""
        return b"".join((b'{"kind":"storage#objects","items":[', rows, b"]", more.encode(), b"}"))


class Connection(asyncio.Protocol):
    """Answers requests without a body, each 30 ms after it came."""

    def __init__(self, keys):
        self._keys, self._text = keys, b""

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        self._text += data
        while b"\r\n\r\n" in self._text:
            head, _, self._text = self._text.partition(b"\r\n\r\n")
            asyncio.get_running_loop().call_later(LATE_S, self._answer, head.split(b" ", 2)[1].decode())

    def _answer(self, target):
        parts = urlsplit(target)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        google = parts.path.startswith("/storage/v1/b/")
        body = self._keys.google(asked) if google else self._keys.s3(asked)
        kind = "application/json" if google else "application/xml"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def main(count):
    """Serve until the standard input ends."""
    loop = asyncio.get_running_loop()
    keys = Keys(count)
    keys.s3({}), keys.google({})
    server = await loop.create_server(lambda: Connection(keys), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
