"""A reusable libcurl transfer: loaded with a request, unloaded as a response.

No Python code runs per chunk of a body. libcurl's own ``fwrite`` fills a stream of ``stream.py``: one over the
destination (bounds-checked by the C library), one that is reused for all small bodies, or one that grows. Header lines
go to a stream of their own, because libcurl's own look-up costs a call for each name.
"""

from __future__ import annotations

import ctypes
import socket
import sys
from functools import cache
from itertools import compress, pairwise, repeat
from operator import ne, not_
from typing import TYPE_CHECKING, Final, NoReturn

from penstock.engine.buffer import readable
from penstock.engine.contracts.exchange import TEXT_BYTES, Response
from penstock.engine.endpoint import is_public
from penstock.engine.transport.libcurl import (
    OK,
    Header,
    HeaderLine,
    easy_cleanup,
    easy_header,
    easy_init,
    easy_nextheader,
    easy_reset,
    getinfo,
    setopt,
    strerror,
    version,
)
from penstock.engine.transport.stream import (
    Collected,
    Growing,
    Pointer,
    Reused,
    close_over,
    flush,
    fwrite,
    open_over,
    rewind,
    written,
)
from penstock.errors import Bug, Unusable
from penstock.version import VERSION

if TYPE_CHECKING:
    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.exchange import Request
    from penstock.engine.transport.libcurl import ConnectionPool
    from penstock.options import TransportOptions

WRITE_ERROR: Final = 23
_OUT_OF_MEMORY: Final = 27
CUT: Final = -1  # not a libcurl code: a transfer that we ended

# From curl/curl.h. Numbers of options and info are part of libcurl's ABI and never change.
_WRITEDATA, _URL, _PROXY, _ERRORBUFFER, _POSTFIELDS, _USERAGENT = 10001, 10002, 10004, 10010, 10015, 10018
_HTTPHEADER, _HEADERDATA, _CUSTOMREQUEST, _CAINFO, _PROTOCOLS_STR = 10023, 10029, 10036, 10065, 10318
_LOW_SPEED_LIMIT, _LOW_SPEED_TIME, _NOBODY, _SSL_VERIFYPEER, _FRESH_CONNECT = 19, 20, 44, 64, 74
_HTTPGET, _SSL_VERIFYHOST, _HTTP_VERSION, _BUFFERSIZE, _NOSIGNAL = 80, 81, 84, 98, 99
_CONNECTTIMEOUT_MS, _PATH_AS_IS, _UPLOAD_BUFFERSIZE, _MAXAGE_CONN = 156, 234, 280, 288
_SHARE, _POSTFIELDSIZE_LARGE = 10100, 30120
_RESPONSE_CODE, _SIZE_UPLOAD_T, _SIZE_DOWNLOAD_T = 0x200002, 0x600007, 0x600008
_PRETRANSFER_TIME_T, _STARTTRANSFER_TIME_T = 0x600035, 0x600036
_TOTAL_TIME_T = 0x600032
_CONNECT_TO, _FORBID_REUSE, _PRIMARY_IP, _QUICK_EXIT = 10243, 75, 0x100020, 322
_OPENSOCKETFUNCTION, _OPENSOCKETDATA = 20163, 10164
_HTTP_1_1 = 2
_HEADER_ORIGIN, _LAST_REQUEST = 1, -1

# Measured with 100 KiB objects: 16 KiB costs a third more CPU, 512 KiB gains nothing.
_RECEIVE_BYTES = 128 << 10
_SEND_BYTES = 512 << 10
# Up to this size a copy takes less time than a separate stream. The text of an error fits, too.
_SMALL_BYTES: Final = 16 << 10
# Rate that counts as progress, averaged over ``stall_timeout_s``.
STALL_BYTES_PER_S = 1024
# Statuses of a body for the destination; any other status comes with the text of an error.
_GOOD = (200, 206)
_GOOD_LINES: Final = {b"HTTP/1.1 200 ": 200, b"HTTP/1.1 206 ": 206}  # beginnings of status lines
_WITHOUT_BODY = ("GET", "HEAD")
# Beginnings of the names of request headers that libcurl looks for, and of some others: Accept, User-Agent, Host,
# Expect, Content-Type, Connection, Transfer-Encoding, TE, Cookie, Referer, Upgrade, HTTP2-Settings, Proxy-Connection.
_ALONE: Final = frozenset({"acc", "use", "hos", "exp", "con", "tra", "te:", "te ", "coo", "ref", "upg", "htt", "pro"})
_REFUSED = 300  # from this status on, the request was not carried out
_ERROR_BYTES = 256  # CURL_ERROR_SIZE

_void, _long, _size = ctypes.c_void_p, ctypes.c_long, ctypes.c_size_t
# Constant arguments of each header look-up. ``map`` takes one from each, which is faster than a loop.
_NONES, _ORIGINS, _LAST_REQUESTS = repeat(_size.from_param(0)), repeat(_HEADER_ORIGIN), repeat(_LAST_REQUEST)

_PYTHON = f"Python/{sys.version_info.major}.{sys.version_info.minor}"
_AGENT = f"penstock/{VERSION} ({_PYTHON}; libcurl/{version().partition(' ')[0]})"


def _set_option(handle: object, option: int, value: object) -> None:
    code = setopt(handle, option, value)
    if code != OK:
        _raise_setopt_error(option, code)


def _raise_setopt_error(option: int, code: int) -> NoReturn:
    if code == _OUT_OF_MEMORY:
        raise MemoryError
    message = f"curl_easy_setopt({option}): {code}"
    raise Bug(message)


@cache
def _encode_names(wants: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return header names as bytes for libcurl; drivers have few such tuples."""
    return tuple([name.encode() for name in wants])


_Names = tuple[tuple[str, bytes], ...]


@cache
def _group_by_beginning(wants: tuple[str, ...]) -> tuple[tuple[bytes, _Names], ...]:
    """Return the prefixes to search header lines for, each with its names and the text before their values."""
    groups: dict[bytes, list[tuple[str, bytes]]] = {}
    for name in wants:
        family = name.rpartition("-")[0] or f"{name}:"
        groups.setdefault(f"\n{family}".encode(), []).append((name, f"\n{name}:".encode()))
    return tuple([(beginning, tuple(names)) for beginning, names in groups.items()])


def _pick_headers(lines: bytes, lower: bytes, wants: tuple[str, ...], headers: dict[str, str]) -> bool:
    """Add the wanted headers of a response to ``headers``, the first of each name; False if one takes two lines.

    ``lower`` is ``lines`` in lower case.
    """
    for beginning, names in _group_by_beginning(wants):
        # `in` would first try whether the text is a number, and drop the error.
        if lower.find(beginning) >= 0:
            for name, mark in names:
                at = lower.find(mark)
                if at >= 0:
                    at += len(mark)
                    end = lower.find(b"\n", at)
                    if lower[end + 1] in b" \t":
                        return False
                    headers[name] = lines[at:end].strip().decode("latin-1")
    return True


# From this size on, the next header lines are written to the start again.
_LINES_BYTES: Final = 4 << 10


class HeaderLines(Growing):
    """A growing stream for the header lines of one response after another; ``take`` returns the latest.

    One call to the C library for each response: the stream is rewound only now and then.
    """

    __slots__ = ("_known", "_start", "_view")

    def __init__(self) -> None:
        super().__init__()
        self._start, self._known = 0, 0
        self._view = memoryview(b"")

    def take(self) -> bytes:
        flush(self.stream)
        start, stop, address = self._start, self.held.value, self.address.value or 0
        if address != self._known or stop > len(self._view):
            self._known, self._view = address, memoryview((ctypes.c_char * stop).from_address(address))
        lines = self._view[start:stop].tobytes()
        if stop < _LINES_BYTES:
            self._start = stop
        else:
            rewind(self.stream)
            self._start = 0
        return lines


def _check_memstream() -> None:
    """Raise Bug if the C library's ``open_memstream`` does not go back as expected; runs before its first use."""
    lines, took = HeaderLines(), []
    pieces = [b"x" * (_LINES_BYTES - 1), b"ab", b"c", b""]  # rewound after the second
    for piece in pieces:
        fwrite(piece, 1, len(piece), lines.stream)
        took.append(lines.take())
    lines.close()
    lines.free()
    if took != pieces:
        message = f"this C library's open_memstream returns {took[1:]!r} where {pieces[1:]!r} was written"
        raise Bug(message)


_check_memstream()


class _Address(ctypes.Structure):
    """An address to connect to (``struct curl_sockaddr``)."""

    _fields_ = (
        ("family", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("protocol", ctypes.c_int),
        ("length", ctypes.c_uint),
        ("bytes", ctypes.c_ubyte * 28),  # of a ``sockaddr_in6``, the longest
    )


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.POINTER(_Address))  # type: ignore[untyped-decorator]
def _open_public(refused: ctypes._Pointer[ctypes.c_int], _purpose: int, address: ctypes._Pointer[_Address]) -> int:
    """Return a socket for a public address; for any other address return -1 and set ``refused``."""
    try:
        found = address.contents
        family, data = found.family, bytes(found.bytes[: found.length])
        at = data[4:8] if family == socket.AF_INET else data[8:24]
        if not is_public(socket.inet_ntop(family, at)):
            refused[0] = 1
            return -1
        return socket.socket(family, found.kind, found.protocol).detach()
    except Exception:  # noqa: BLE001  no exception may pass into libcurl, which reports a failed connection
        return -1


class Easy:
    """A reusable transfer, configured once per store and loaded with one request at a time.

    ``collected`` is the stream of a body without a target, while it is in flight; ``guarded`` says whether sockets are
    opened to public addresses only.
    """

    __slots__ = (
        *("_elsewhere", "_errors", "_inward", "_found", "_found_at", "_handles", "_kept", "_lines", "_method"),
        *("_received", "_nodes", "_options", "_reused", "_status", "_status_at", "_stream", "_takes", "collected"),
        *("guarded", "handle", "pointer", "request"),
    )

    def __init__(self, options: TransportOptions, pool: ConnectionPool | None = None) -> None:
        self.pointer: int = easy_init().value or 0
        if not self.pointer:
            raise MemoryError
        self.handle = Pointer.from_param(self.pointer)  # converted once, not for each call
        self._handles = repeat(self.handle)
        self._options = options
        self._errors = ctypes.create_string_buffer(_ERROR_BYTES)
        self._status, self._found = _long(), ctypes.POINTER(Header)()
        self._status_at, self._found_at = ctypes.byref(self._status), repeat(ctypes.byref(self._found))
        self._received = HeaderLines()
        self._stream: Pointer | None = None
        self._reused: Reused | None = None  # made for the first small body
        self._takes: Pointer | None = None  # the stream that the handle is set to write to
        self.collected: Collected | None = None
        # ``_inward``: whether it refused a socket.
        self.guarded, self._inward = False, ctypes.c_int()
        self._lines: tuple[str, ...] = ()  # content of the nodes
        self._nodes: list[HeaderLine] = []
        self._kept: object = None
        self.request: Request | None = None
        # Method that the handle is set up for; empty if the handle must be reset first.
        self._method = ""
        if pool is not None:
            _set_option(self.handle, _SHARE, pool.handle)
        self._configure()

    def _configure(self) -> None:
        options = self._options
        handle = self.handle
        for option, number in (
            (_BUFFERSIZE, _RECEIVE_BYTES),
            (_UPLOAD_BUFFERSIZE, _SEND_BYTES),
            (_NOSIGNAL, 1),
            # For a resolver that never answers: without this option libcurl before 8.20 ends a transfer only after
            # getaddrinfo has returned, and the I/O thread and all other stores wait as long.
            (_QUICK_EXIT, 1),
            (_PATH_AS_IS, 1),
            (_HTTP_VERSION, _HTTP_1_1),
            (_CONNECTTIMEOUT_MS, int(options.connect_timeout_s * 1000)),
            (_LOW_SPEED_LIMIT, STALL_BYTES_PER_S),
            (_LOW_SPEED_TIME, max(1, round(options.stall_timeout_s))),
            (_MAXAGE_CONN, max(1, int(options.idle_s))),
            (_SSL_VERIFYPEER, int(options.verify)),
            (_SSL_VERIFYHOST, 2 if options.verify else 0),
        ):
            _set_option(handle, option, _long(number))
        _set_option(handle, _ERRORBUFFER, self._errors)
        _set_option(handle, _HEADERDATA, self._received.stream)
        _set_option(handle, _USERAGENT, ctypes.c_char_p(f"{_AGENT} {options.user_agent_extra}".strip().encode("ascii")))
        _set_option(handle, _PROTOCOLS_STR, ctypes.c_char_p(b"http,https"))
        if options.ca_file is not None:
            _set_option(handle, _CAINFO, ctypes.c_char_p(options.ca_file.encode()))
        if options.proxy is not None:
            _set_option(handle, _PROXY, ctypes.c_char_p(options.proxy.encode()))
        self._lines, self._nodes = (), []
        self._takes = None
        self.guarded = False
        self._method = "GET"

    def close(self) -> None:
        """Free the handle, which must be unused and in no multi handle."""
        easy_cleanup(self.handle)
        self._received.close()
        self._received.free()
        if self._reused is not None:
            self._reused.close()

    def load(self, request: Request, *, fresh: str | bool) -> None:  # noqa: C901  calls cost too much here
        """Load the next request. ``fresh`` demands a new connection, to a given address if not True."""
        handle = self.handle
        method = request.method
        if fresh or method != self._method:
            self._load_method(method, fresh=fresh)
        self.request = request
        if request.public is not self.guarded:
            self._guard(wanted=request.public)
        if method not in _WITHOUT_BODY:
            self._load_body(request.body if request.body is not None else b"")
        lines = request.headers
        # ``_lines`` is also empty after a failure to set the previous lines.
        if not lines or lines != self._lines:
            self._head(lines)
        if (code := setopt(handle, _URL, request.url.encode("ascii"))) != OK:
            _raise_setopt_error(_URL, code)
        target = request.target
        # A HEAD has no body: it needs no separate stream, which takes longer to open.
        if method == "HEAD" or (target is not None and target.size <= _SMALL_BYTES):
            reused = self._reused
            if reused is None:
                reused = self._reused = Reused(_SMALL_BYTES)
            stream = reused.stream
            rewind(stream)
        elif target is not None:
            stream = open_over(target.address, target.size)
        else:
            self.collected = Collected()
            stream = self.collected.stream
        self._stream = stream
        if stream is not self._takes:
            self._takes = None
            if (code := setopt(handle, _WRITEDATA, stream)) != OK:
                _raise_setopt_error(_WRITEDATA, code)
            self._takes = stream

    def _head(self, lines: tuple[str, ...]) -> None:
        """Set the header lines to send. libcurl reads our list, in which few lines change between requests.

        All lines after the first are one node, as libcurl sends a node as it is: it compares each node with a dozen
        names, and copies and formats each. Only lines that it would act upon have a node each.
        """
        before, self._lines = self._lines, ()  # until all are set
        same = bool(before) and len(lines) == len(before)
        nodes = self._nodes if same else []
        for line in compress(lines, map(ne, lines, before)) if same else lines:
            if "\n" in line or "\r" in line or "\0" in line:  # for example, an ETag from a manifest
                raise Unusable("a header cannot hold a line break or a NUL")
            if line[:3].lower() in _ALONE and line is not lines[0]:
                nodes = []
        if len(nodes) == 2:  # noqa: PLR2004  the first line, all others
            if lines[0] != before[0]:
                nodes[0].data = lines[0].encode("latin-1")
            nodes[1].data = "\r\n".join(lines[1:]).encode("latin-1")
        else:
            self._chain(lines)
        self._lines = lines

    def _chain(self, lines: tuple[str, ...]) -> None:
        if len(lines) > 1 and _ALONE.isdisjoint([line[:3].lower() for line in lines[1:]]):
            lines = lines[0], "\r\n".join(lines[1:])
        nodes = [HeaderLine(line.encode("latin-1")) for line in lines]
        for node, following in pairwise(nodes):
            node.next = ctypes.addressof(following)
        _set_option(self.handle, _HTTPHEADER, ctypes.byref(nodes[0]) if nodes else None)
        self._nodes = nodes

    def _load_method(self, method: str, *, fresh: str | bool) -> None:
        """Set up the handle for a method; nothing is inherited from a request with another method or with ``fresh``."""
        handle, before, self._method = self.handle, self._method, ""
        if before == "HEAD":
            # The only option that a HEAD sets; this one unsets it.
            _set_option(handle, _HTTPGET, _long(1))
        elif before != "GET":
            easy_reset(handle)
            self._configure()
        self._method = ""  # until it is all set
        if fresh:
            _set_option(handle, _FRESH_CONNECT, _long(1))
        if isinstance(fresh, str):
            self._connect_to(fresh)
        if method == "HEAD":
            _set_option(handle, _NOBODY, _long(1))
        elif method != "GET":
            _set_option(handle, _CUSTOMREQUEST, ctypes.c_char_p(method.encode()))
        if not fresh:
            self._method = method

    def _guard(self, *, wanted: bool) -> None:
        """Allow sockets to public addresses only, if ``wanted``: a name may resolve to another address each time."""
        self._inward.value = 0
        _set_option(self.handle, _OPENSOCKETFUNCTION, _open_public if wanted else None)
        _set_option(self.handle, _OPENSOCKETDATA, ctypes.byref(self._inward) if wanted else None)
        self.guarded = wanted

    def went_inward(self) -> bool:
        """Return whether a request for public addresses led, or would have led, to an address that is not public."""
        inward, self._inward.value = self._inward.value, 0
        # Another request may have opened this connection.
        address = self.address()
        return bool(address and not is_public(address)) or bool(inward and not address)

    def _load_body(self, body: bytes | bytearray | memoryview) -> None:
        # POSTFIELDS is read in place and rewound by libcurl itself, also when a kept-alive connection turns out dead
        # under a request; a read function would need a seek function for that.
        address, self._kept = readable(body)
        _set_option(self.handle, _POSTFIELDSIZE_LARGE, ctypes.c_longlong(memoryview(body).nbytes))
        _set_option(self.handle, _POSTFIELDS, _void(address))

    def _connect_to(self, address: str) -> None:
        """Connect to ``address`` instead of those that the URL's host resolves to; TLS still verifies the host.

        The connection ends with the request: libcurl would not use it for requests without an address.
        """
        self._elsewhere = line = HeaderLine()
        line.data = f"::{f'[{address}]' if ':' in address else address}:".encode("ascii")
        _set_option(self.handle, _CONNECT_TO, ctypes.byref(line))
        _set_option(self.handle, _FORBID_REUSE, _long(1))

    def excessive(self) -> bool:
        request = self.request
        if self.collected is None or request is None or self._arrived() <= TEXT_BYTES:
            return False
        return self._arrived() > self._most_bytes(request, self._answered())

    def _answered(self) -> int:
        getinfo(self.handle, _RESPONSE_CODE, self._status_at)
        return self._status.value

    def _arrived(self) -> int:
        return self._number(_SIZE_DOWNLOAD_T)

    def sent(self) -> bool:
        request = self.request
        size = 0 if request is None or request.body is None else memoryview(request.body).nbytes
        return self._number(_PRETRANSFER_TIME_T) > 0 and self._number(_SIZE_UPLOAD_T) >= size

    def _most_bytes(self, request: Request, status: int) -> int:
        """Return the bytes to collect of a response with this status; of an error's text, only the beginning."""
        return request.most_bytes if request.target is None and status < _REFUSED else TEXT_BYTES

    def unload(self, code: int = CUT) -> Response:
        """Close what ``load`` opened and return the response for libcurl's ``code``; the caller adds faults.

        If no request was loaded, or only partly, the response is empty. All headers are kept unless the exchange is
        complete, because they may explain the failure. MemoryError if memory ran short for the body.
        """
        request, self.request, self._kept = self.request, None, None
        if request is None:
            return Response()
        target, wants = request.target, request.wants
        lines = self._received.take()
        lower = lines.lower()
        status = _GOOD_LINES.get(lines[:13], 0)
        # One response, with neither an interim one before it nor trailers behind it: nearly all.
        plain = status and lower.find(b"\r\n\r\n") == len(lower) - 4
        if not plain:
            getinfo(self.handle, _RESPONSE_CODE, self._status_at)
            status = self._status.value
        response = Response(status)
        if code == OK and target is not None and status in _GOOD and self.collected is None:  # nearly all
            stream, self._stream = self._stream, None
            if (reused := self._reused) is not None and stream is reused.stream:
                response.received = size = written(stream)
                if size == target.size:
                    target.renew(reused.view[:size])
                else:
                    self._uneven(response, target, reused, code)
            elif stream is not None:
                response.received = close_over(stream)
            whole = (response.received == target.size or request.shorter) and not response.overflow
        else:
            self._close(request, response, code)
            whole = code == OK and target is None and status in _GOOD
        headers = response.headers
        if wants is None or not whole:
            response.headers = self._all_headers()
        elif not (plain and _pick_headers(lines, lower, wants, headers)):
            found = self._found
            codes = map(
                easy_header, self._handles, _encode_names(wants), _NONES, _ORIGINS, _LAST_REQUESTS, self._found_at
            )
            # OK is 0. Copy each value at once: the next look-up may overwrite it.
            for name in compress(wants, map(not_, codes)):
                headers[name] = found.contents.value.decode("latin-1")
        return response

    def _uneven(self, response: Response, target: Buffer, reused: Reused, code: int) -> None:
        """Fill ``target`` with a small body that is shorter than it, or with the beginning of a longer one."""
        size = written(reused.stream)
        response.overflow = code == WRITE_ERROR or size > target.size
        response.received = received = min(size, target.size)
        target.fill(reused.view[:received])

    def _all_headers(self) -> dict[str, str]:
        headers, found = {}, None
        while found := easy_nextheader(self.handle, _HEADER_ORIGIN, _LAST_REQUEST, found):
            name: bytes = found.contents.name
            value: bytes = found.contents.value
            headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        return headers

    def _close(self, request: Request, response: Response, code: int) -> None:
        stream, self._stream = self._stream, None
        collected, self.collected = self.collected, None
        target, good = request.target, response.status in _GOOD
        if collected is not None:
            self._collect(collected, request, response, code)
        elif target is not None and (reused := self._reused) is not None and stream is reused.stream:
            if good:
                self._uneven(response, target, reused, code)
            else:
                response.body = bytes(reused.view[: written(stream)])
        elif stream is not None and target is not None:
            response.received = close_over(stream)
            response.overflow = code == WRITE_ERROR
            if not good:
                response.body = bytes(target.view()[: min(response.received, TEXT_BYTES)])

    def _collect(self, collected: Collected, request: Request, response: Response, code: int) -> None:
        """Take over the collected bytes: all of them, or the beginning of an error's text."""
        try:
            kept, target = collected.close(), request.target
            if code == WRITE_ERROR or not kept or (code == OK and collected.size != self._arrived()):
                # A growing stream fails for no other reason.
                raise MemoryError
            most_bytes = self._most_bytes(request, response.status)
            if target is not None and response.status in _GOOD:
                body = collected.copy(target.size)
                target.fill(body)
                response.received, response.overflow = len(body), collected.size > target.size
            elif collected.size <= most_bytes or response.status >= _REFUSED:
                response.body = collected.copy(most_bytes)
            else:
                response.overflow = True
        finally:
            collected.free()

    def first_byte_s(self) -> float:
        return (self._number(_STARTTRANSFER_TIME_T) - self._number(_PRETRANSFER_TIME_T)) / 1e6

    def body_s(self) -> float:
        return (self._number(_TOTAL_TIME_T) - self._number(_STARTTRANSFER_TIME_T)) / 1e6

    def _number(self, info: int) -> int:
        number = ctypes.c_longlong()
        getinfo(self.handle, info, ctypes.byref(number))
        return number.value

    def progress(self) -> tuple[float, float, int]:
        """Return the seconds until sent and until the first byte, 0.0 before that, and the bytes of the body so far."""
        sent_us, answered_us = self._number(_PRETRANSFER_TIME_T), self._number(_STARTTRANSFER_TIME_T)
        return sent_us / 1e6, answered_us / 1e6, self._arrived()

    def address(self) -> str:
        found = ctypes.c_char_p()
        getinfo(self.handle, _PRIMARY_IP, ctypes.byref(found))
        return (found.value or b"").decode("ascii", "replace")

    def explain(self, code: int) -> str:
        return (self._errors.value or strerror(code)).decode("utf-8", "replace")
