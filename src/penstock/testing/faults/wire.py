"""How an answer goes out: byte by byte as HTTP wants it, or as a fault has it."""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.testing.faults.message import Answer, Refused

if TYPE_CHECKING:
    from penstock.testing.faults.kinds import Fault
    from penstock.testing.faults.message import Request

__all__ = ["changed", "refusal", "send"]

_PAGE = b"<html><head><title>Bad gateway</title></head><body>" + b"<p>upstream is away</p>\n" * 4300 + b"</body></html>"
_GARBAGE = b"<html><p>This is a & captive portal: please log in<br>"
_OTHER_ETAG = "00000000000000000000000000000000"
_OTHER_VERSION = "1"  # a generation that no object of ours has
_STALL_MS = 120_000  # a client without any patience limit is let go in the end
_DRIPS_PER_S = 20
_BODYLESS = (204, 304)


def refusal(fault: Fault) -> Answer:
    """Return what a fault with a status answers."""
    if not fault.code:
        return Answer(fault.status, {"Content-Type": "text/html", **dict(fault.headers)}, _PAGE)
    answer = Refused(fault.status, fault.code, fault.about, region=fault.region).answer()
    answer.headers.update(fault.headers)
    return answer


def changed(answer: Answer, fault: Fault, version: str = "ETag") -> Answer:
    """Return the answer as the fault leaves it; what happens to requests is not done here.

    ``version`` is the header that names an object's version.
    """
    headers, body = answer.headers | dict(fault.headers), answer.body
    if fault.change == "etag":
        etag = headers.get("ETag", "")
        body = body.replace(_named(body), _OTHER_ETAG.encode()) if not etag else body
        headers |= {"ETag": f'"{_OTHER_ETAG}"'} if etag else {}
        headers |= {version: _OTHER_VERSION} if version != "ETag" and version in headers else {}
    elif fault.change == "corrupt" and "Accept-Ranges" in headers and body:
        middle = len(body) // 2
        body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
    elif fault.change == "garbage":
        body = _GARBAGE
    status = 200 if fault.change == "part" else answer.status
    return replace(answer, status=status, headers=headers, body=body)


def _named(body: bytes) -> bytes:
    return (
        body.partition(b"<ETag>&quot;")[2].partition(b"&quot;")[0] or body.partition(b'<ETag>"')[2].partition(b'"')[0]
    )


def send(connection: socket.socket, request: Request, answer: Answer, fault: Fault) -> bool:
    """Send the answer; returns whether the connection can be used again, else the caller closes it. Raises OSError."""
    head, body = _parts(request, answer, fault)
    whole = (head + body) * fault.copies
    pieces = {"": whole, "start": b"", "headers": head[: len(head) // 2], "body": head + body[: len(body) // 2]}
    _write(connection, pieces[fault.cut], fault.bytes_per_s)
    if fault.cut:
        _break(connection, fault.how)
    return not (fault.cut or fault.unsized or answer.unsized or fault.longer > 0 or request.last)


def _parts(request: Request, answer: Answer, fault: Fault) -> tuple[bytes, bytes]:
    headers = {**answer.headers, "Server": "penstock-faults", "x-amz-request-id": "0123456789ABCDEF"}
    unsized = fault.unsized or answer.unsized
    if not unsized and answer.status not in _BODYLESS:
        headers["Content-Length"] = str(len(answer.body) + fault.longer)
    if unsized or request.last:
        headers["Connection"] = "close"
    lines = [answer.line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1"), b"" if request.method == "HEAD" else answer.body


def _write(connection: socket.socket, data: bytes, bytes_per_s: int) -> None:
    if not bytes_per_s:
        connection.sendall(data)
        return
    step = max(1, bytes_per_s // _DRIPS_PER_S)
    for at in range(0, len(data), step):
        connection.sendall(data[at : at + step])
        time.sleep(step / bytes_per_s)


def _break(connection: socket.socket, how: str) -> None:
    if how == "stall":
        poll = select.poll()
        poll.register(connection, select.POLLIN | select.POLLHUP)
        poll.poll(_STALL_MS)
    elif how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        connection.shutdown(socket.SHUT_RDWR)
