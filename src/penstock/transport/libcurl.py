"""The binding to libcurl and the C library's streams: the only file that knows their pointers.

No Python code runs per chunk of a body. libcurl's own ``fwrite`` fills a stream that ``fmemopen`` laid over the
destination (bounds-checked by the C library) or one that ``open_memstream`` grows. Calls that wait or move bytes go
through ``_waiting`` and drop the GIL; short ones go through ``_short`` and keep it, so that a poll cycle takes the GIL
twice and not once per option: with another thread busy in Python, taking it costs up to 5 ms each time.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import Bug, ConfigError, Unusable
from penstock.protocols.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.options import TransportOptions
    from penstock.protocols.exchange import Request
    from penstock.target import Target

__all__ = ["OK", "WRITE_ERROR", "Easy", "Multi", "version"]

OK: Final = 0
WRITE_ERROR: Final = 23

# From curl/curl.h. Numbers of options and info are part of libcurl's ABI and never change.
_WRITEDATA, _URL, _PROXY, _ERRORBUFFER, _POSTFIELDS = 10001, 10002, 10004, 10010, 10015
_HTTPHEADER, _CUSTOMREQUEST, _CAINFO, _PROTOCOLS_STR = 10023, 10036, 10065, 10318
_LOW_SPEED_LIMIT, _LOW_SPEED_TIME, _NOBODY, _SSL_VERIFYPEER, _FRESH_CONNECT = 19, 20, 44, 64, 74
_SSL_VERIFYHOST, _HTTP_VERSION, _BUFFERSIZE, _NOSIGNAL = 81, 84, 98, 99
_CONNECTTIMEOUT_MS, _PATH_AS_IS, _UPLOAD_BUFFERSIZE, _MAXAGE_CONN = 156, 234, 280, 288
_POSTFIELDSIZE_LARGE = 30120
_RESPONSE_CODE, _PRETRANSFER_TIME_T, _STARTTRANSFER_TIME_T = 0x200002, 0x600035, 0x600036
_HTTP_1_1, _MULTI_MAXCONNECTS = 2, 6
_HEADER_ORIGIN, _LAST_REQUEST = 1, -1
_FEATURE_SSL, _FEATURE_ASYNCHDNS = 1 << 2, 1 << 7
_OLDEST = (7, 87, 0)

_RECEIVE_BYTES = 128 << 10  # measured with 100 KiB objects: 16 KiB costs a third more CPU, 512 KiB gains nothing
_SEND_BYTES = 512 << 10
_DIRECT_BYTES = 4096  # below it the body is collected and copied, so that an error's text always has room
_GOOD = (200, 206)  # what a body in the destination may come with; any other status brings the text of an error
_ERROR_BYTES = 256  # CURL_ERROR_SIZE

_void, _int, _long, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_size_t


class _Pointer(ctypes.c_void_p):
    """A result that is passed on as it came; a plain ``c_void_p`` becomes an int, and an int is passed as 32 bits."""


class _Line(ctypes.Structure):
    """A node of libcurl's list of header lines (``struct curl_slist``)."""

    _fields_ = (("data", ctypes.c_char_p), ("next", _void))


class _Message(ctypes.Structure):
    _fields_ = (("kind", _int), ("easy", _void), ("result", _long))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_char_p),
        ("amount", _size),
        ("index", _size),
        ("origin", ctypes.c_uint),
        ("anchor", _void),
    )


class _Version(ctypes.Structure):
    _fields_ = (
        ("age", _int),
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_uint),
        ("host", ctypes.c_char_p),
        ("features", _int),
        ("tls", ctypes.c_char_p),
    )


def _candidates() -> Iterator[str]:
    """Yield where libcurl may lie, best first: the one inside pycurl's wheel, then the system's."""
    spec = find_spec("pycurl")
    if spec is not None and spec.origin is not None:
        for home in Path(spec.origin).parents[:2]:
            for pattern in ("pycurl.libs/libcurl*", ".dylibs/libcurl*", "pycurl/.dylibs/libcurl*"):
                yield from map(str, sorted(home.glob(pattern)))
    found = ctypes.util.find_library("curl")
    if found is not None:
        yield found
    yield "libcurl.so.4" if sys.platform != "darwin" else "libcurl.4.dylib"


def _load() -> tuple[ctypes.PyDLL, ctypes.CDLL]:
    """Load libcurl twice over: a handle that keeps the GIL during calls, and one that drops it."""
    failures = []
    for path in _candidates():
        try:
            return ctypes.PyDLL(path), ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    message = f"no libcurl found; `pip install pycurl` brings one ({'; '.join(failures)})"
    raise ConfigError(message)


_short, _waiting = _load()
_libc = ctypes.PyDLL(None)


def _declare(owner: ctypes.CDLL, name: str, result: object, *arguments: object) -> ctypes._FuncPointer:
    function: ctypes._FuncPointer = owner[name]
    function.restype = result  # type: ignore[assignment]
    function.argtypes = arguments  # type: ignore[assignment]
    return function


def _hot(owner: ctypes.CDLL, name: str, result: object, *, variadic: bool = False) -> ctypes._FuncPointer:
    """Bind without argument types, whose checks take as long as a call: give C ints, bytes and ctypes values only."""
    function = _declare(owner, name, result)
    # Apple's arm64 passes what is beyond the fixed arguments of a variadic function differently.
    function.argtypes = (_void, _int) if variadic and sys.platform == "darwin" else None  # type: ignore[assignment]
    return function


_global_init = _declare(_short, "curl_global_init", _int, _long)
_version_info = _declare(_short, "curl_version_info", ctypes.POINTER(_Version), _int)
_strerror = _declare(_short, "curl_easy_strerror", ctypes.c_char_p, _int)
_easy_init = _declare(_short, "curl_easy_init", _Pointer)
_easy_reset = _declare(_short, "curl_easy_reset", None, _void)
_setopt = _hot(_short, "curl_easy_setopt", _int, variadic=True)
_getinfo = _hot(_short, "curl_easy_getinfo", _int, variadic=True)
_easy_header = _hot(_short, "curl_easy_header", _int)
_easy_nextheader = _declare(
    _short, "curl_easy_nextheader", ctypes.POINTER(_Header), _void, ctypes.c_uint, _int, ctypes.POINTER(_Header)
)
_multi_init = _declare(_short, "curl_multi_init", _Pointer)
_multi_setopt = _hot(_short, "curl_multi_setopt", _int, variadic=True)
_multi_add = _hot(_short, "curl_multi_add_handle", _int)
_multi_remove = _hot(_short, "curl_multi_remove_handle", _int)
_multi_remove_waiting = _hot(_waiting, "curl_multi_remove_handle", _int)
_multi_info = _hot(_short, "curl_multi_info_read", ctypes.POINTER(_Message))
_multi_wakeup = _declare(_short, "curl_multi_wakeup", _int, _void)
_multi_perform = _declare(_waiting, "curl_multi_perform", _int, _void, ctypes.POINTER(_int))
_multi_poll = _declare(_waiting, "curl_multi_poll", _int, _void, _void, ctypes.c_uint, _int, ctypes.POINTER(_int))

_fmemopen = _hot(_libc, "fmemopen", _Pointer)
_open_memstream = _declare(_libc, "open_memstream", _Pointer, ctypes.POINTER(_void), ctypes.POINTER(_size))
_setvbuf = _hot(_libc, "setvbuf", _int)
_ftell = _hot(_libc, "ftell", _long)
_fclose = _hot(_libc, "fclose", _int)
_fwrite = _declare(_libc, "fwrite", _size, ctypes.c_char_p, _size, _size, _void)
_free = _declare(_libc, "free", None, _void)
_first_byte = ctypes.c_char.from_address
_NONE = _size(0)
_UNBUFFERED = 2  # _IONBF, the same number on glibc, musl and macOS


def version() -> str:
    """Return libcurl's version and TLS library, such as ``8.23.0 OpenSSL/3.6.5``."""
    info = _version_info(0).contents
    return f"{info.text.decode()} {(info.tls or b'no TLS').decode()}"


def _check() -> None:
    """Refuse a libcurl that lacks what is relied upon, before the first byte is trusted to it."""
    _global_init(3)  # CURL_GLOBAL_DEFAULT
    info = _version_info(0).contents
    number = (info.number >> 16 & 255, info.number >> 8 & 255, info.number & 255)
    if number < _OLDEST or not info.features & _FEATURE_SSL or not info.features & _FEATURE_ASYNCHDNS:
        needs = "TLS, a threaded resolver and version 7.87 are needed; `pip install -U pycurl`"
        message = f"libcurl {version()} will not do: {needs}"
        raise ConfigError(message)
    probe = bytearray(b"..!")
    pin = (ctypes.c_char * 3).from_buffer(probe)
    stream = _over(ctypes.addressof(pin), 2)
    wrote = _fwrite(b"abc", 1, 2, stream), _fwrite(b"c", 1, 1, stream)
    _fclose(stream)
    if wrote != (2, 0) or probe != b"ab!":
        message = f"this C library's fmemopen writes {probe!r} where b'ab!' was expected"
        raise Bug(message)


def _over(address: int, size: int) -> _Pointer:
    """Open an unbuffered stream that writes into ``[address, address + size)`` and nowhere else.

    Mode "r+", not "w": with "w" glibc (2.36) writes a terminating NUL over the last byte of a region that has just
    been filled, so every object's last byte would be lost. "r+" measures what is there with ``strnlen`` first, hence
    the NUL at the start.
    """
    _first_byte(address).value = b"\0"
    stream: _Pointer = _fmemopen(_void(address), _size(size), b"r+")
    _setvbuf(stream, None, _UNBUFFERED, _NONE)
    return stream


class Easy:
    """One reusable transfer, configured once per store and loaded with a request at a time."""

    __slots__ = (
        "_clean",
        "_errors",
        "_found",
        "_found_at",
        "_kept",
        "_lines",
        "_memory",
        "_nodes",
        "_options",
        "_status",
        "_status_at",
        "_stream",
        "handle",
        "pointer",
        "request",
    )

    def __init__(self, options: TransportOptions) -> None:
        """Create the handle; raises MemoryError where libcurl cannot."""
        self.handle: _Pointer = _easy_init()
        if not self.handle:
            raise MemoryError
        self.pointer = self.handle.value or 0
        self._options = options
        self._errors = ctypes.create_string_buffer(_ERROR_BYTES)
        self._status, self._found = _long(), ctypes.POINTER(_Header)()
        self._status_at, self._found_at = ctypes.byref(self._status), ctypes.byref(self._found)
        self._stream: _Pointer | None = None
        self._memory: tuple[ctypes.c_void_p, ctypes.c_size_t] | None = None
        self._lines: tuple[str, ...] = ()  # what the nodes hold
        self._nodes: list[_Line] = []
        self._kept: object = None
        self.request: Request | None = None
        self._clean = False
        self._configure()

    def _configure(self) -> None:
        """Set what does not change from request to request."""
        options = self._options
        handle = self.handle
        for option, number in (
            (_BUFFERSIZE, _RECEIVE_BYTES),
            (_UPLOAD_BUFFERSIZE, _SEND_BYTES),
            (_NOSIGNAL, 1),
            (_PATH_AS_IS, 1),
            (_HTTP_VERSION, _HTTP_1_1),
            (_CONNECTTIMEOUT_MS, int(options.connect_timeout_s * 1000)),
            (_LOW_SPEED_LIMIT, options.stall_bytes_per_s),
            (_LOW_SPEED_TIME, max(1, round(options.stall_timeout_s))),
            (_MAXAGE_CONN, options.idle_s),
            (_SSL_VERIFYPEER, int(options.verify)),
            (_SSL_VERIFYHOST, 2 if options.verify else 0),
        ):
            _setopt(handle, option, _long(number))
        _setopt(handle, _ERRORBUFFER, self._errors)
        _setopt(handle, _PROTOCOLS_STR, ctypes.c_char_p(b"http,https"))
        if options.ca_file is not None:
            _setopt(handle, _CAINFO, ctypes.c_char_p(options.ca_file.encode()))
        if options.proxy is not None:
            _setopt(handle, _PROXY, ctypes.c_char_p(options.proxy.encode()))
        self._lines, self._nodes = (), []
        self._clean = True

    def load(self, request: Request, *, fresh: bool) -> None:
        """Take the next request; ``fresh`` demands a new connection."""
        handle = self.handle
        if not self._clean:
            _easy_reset(handle)
            self._configure()
        self.request = request
        if request.method != "GET" or fresh:
            self._load_method(request, fresh=fresh)
        self._head(request.headers)
        _setopt(handle, _URL, request.url.encode("ascii"))
        self._open(request.target)

    def _head(self, lines: tuple[str, ...]) -> None:
        """Have these lines sent. libcurl reads a list of ours, in which mostly the last two change: what and proof."""
        first = len(lines) - 2
        if first <= 0 or lines[:first] != self._lines[:-2]:
            first = 0
            self._chain(len(lines))
        self._lines = ()  # until they are all there
        for at in range(first, len(lines)):
            line = lines[at]
            if "\n" in line or "\r" in line:  # an ETag from a stranger's manifest, say
                raise Unusable("a header cannot hold a line break")
            self._nodes[at].data = line.encode("latin-1")
        self._lines = lines

    def _chain(self, count: int) -> None:
        nodes = [_Line() for _ in range(count)]
        for node, following in pairwise(nodes):
            node.next = ctypes.addressof(following)
        _setopt(self.handle, _HTTPHEADER, ctypes.byref(nodes[0]) if nodes else None)
        self._nodes = nodes

    def _load_method(self, request: Request, *, fresh: bool) -> None:
        """Set up what the next GET must not inherit; the handle is reset after it."""
        handle = self.handle
        self._clean = False
        if fresh:
            _setopt(handle, _FRESH_CONNECT, _long(1))
        if request.method == "HEAD":
            _setopt(handle, _NOBODY, _long(1))
        elif request.method != "GET":
            # POSTFIELDS is read in place and rewound by libcurl itself, also when a kept-alive connection turns
            # out dead under a request; a read function would need a seek function for that.
            body = request.body if request.body is not None else b""
            address, self._kept = _readable(body)
            _setopt(handle, _POSTFIELDSIZE_LARGE, ctypes.c_longlong(memoryview(body).nbytes))
            _setopt(handle, _POSTFIELDS, _void(address))
            _setopt(handle, _CUSTOMREQUEST, ctypes.c_char_p(request.method.encode()))

    def _open(self, target: Target | None) -> None:
        if target is not None and target.size >= _DIRECT_BYTES:
            self._stream = _over(target.address, target.size)
        else:
            self._memory = (_void(), _size())
            self._stream = _open_memstream(ctypes.byref(self._memory[0]), ctypes.byref(self._memory[1]))
        if not self._stream:
            raise MemoryError
        _setopt(self.handle, _WRITEDATA, self._stream)

    def unload(self, *, whole: bool = False) -> Response:
        """Close what ``load`` opened and return what came back; faults are the caller's to add.

        Unless the exchange is ``whole``, all headers are kept, for they may say what went wrong.
        """
        request = self.request
        if request is None:
            message = "unload without load"
            raise Bug(message)
        _getinfo(self.handle, _RESPONSE_CODE, self._status_at)
        response = Response(self._status.value)
        self._close(request.target, response)
        whole = whole and (request.target is None or response.received == request.target.size)
        if request.wants is None or not whole or response.status not in _GOOD:
            response.headers = self._all_headers()
        else:
            handle, found, at = self.handle, self._found, self._found_at
            for name in request.wants:
                if _easy_header(handle, name.encode(), _NONE, _HEADER_ORIGIN, _LAST_REQUEST, at) == OK:
                    response.headers[name] = found.contents.value.decode("latin-1")
        self._kept = self.request = None
        return response

    def _all_headers(self) -> dict[str, str]:
        headers, found = {}, None
        while found := _easy_nextheader(self.handle, _HEADER_ORIGIN, _LAST_REQUEST, found):
            name: bytes = found.contents.name
            value: bytes = found.contents.value
            headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        return headers

    def _close(self, target: Target | None, response: Response) -> None:
        good = response.status in _GOOD
        if self._memory is None:
            response.received = _ftell(self._stream)
            _fclose(self._stream)
            if target is not None and not good:
                response.body = bytes(target.view()[: response.received])
        else:
            _fclose(self._stream)
            address, size = self._memory[0].value, self._memory[1].value
            body = ctypes.string_at(address, size) if address and size else b""
            _free(address)
            self._memory = None
            if target is None or not good:
                response.body = body
            else:
                response.overflow = len(body) > target.size
                target.fill(body[: target.size])
                response.received = min(len(body), target.size)
        self._stream = None

    def first_byte_s(self) -> float:
        """Return the seconds from the request, on a connection that stood, to the first byte of its answer."""
        sent, answered = ctypes.c_longlong(), ctypes.c_longlong()
        _getinfo(self.handle, _PRETRANSFER_TIME_T, ctypes.byref(sent))
        _getinfo(self.handle, _STARTTRANSFER_TIME_T, ctypes.byref(answered))
        return (answered.value - sent.value) / 1e6

    def explain(self, code: int) -> str:
        """Return libcurl's own words for a failure of this transfer."""
        return (self._errors.value or _strerror(code)).decode("utf-8", "replace")


def _readable(body: bytes | bytearray | memoryview) -> tuple[int, object]:
    """Return the address of a buffer to be sent, and what must live until it has been."""
    if isinstance(body, bytes):
        pointer = ctypes.c_char_p(body)
        return ctypes.cast(pointer, _void).value or 0, (body, pointer)
    view = memoryview(body).cast("B")
    if view.readonly or not view.nbytes:
        return _readable(bytes(view))
    pin = (ctypes.c_char * view.nbytes).from_buffer(view)
    return ctypes.addressof(pin), pin


class Multi:
    """Many transfers at once, on one thread; only ``wakeup`` may be called from another."""

    __slots__ = ("_handle", "_left", "_left_at", "_running")

    def __init__(self, connections: int) -> None:
        """Create the set; ``connections`` idle ones are kept for reuse."""
        self._handle: _Pointer = _multi_init()
        if not self._handle:
            raise MemoryError
        self._running, self._left = _int(), _int()
        self._left_at = ctypes.byref(self._left)
        _multi_setopt(self._handle, _MULTI_MAXCONNECTS, _long(connections))

    def add(self, easy: Easy) -> None:
        """Start a loaded transfer at the next ``perform``."""
        code = _multi_add(self._handle, easy.handle)
        if code != OK:
            message = f"curl_multi_add_handle: {code}"
            raise Bug(message)

    def remove(self, easy: Easy, *, unfinished: bool = False) -> None:
        """Take a transfer out; an unfinished one closes its connection, which may take a moment."""
        (_multi_remove_waiting if unfinished else _multi_remove)(self._handle, easy.handle)

    def perform(self) -> None:
        """Move what can be moved without waiting."""
        _multi_perform(self._handle, self._running)

    def poll(self, timeout_ms: int) -> None:
        """Wait until something can be moved, ``wakeup`` is called, or the time is over."""
        _multi_poll(self._handle, None, 0, timeout_ms, None)

    def wakeup(self) -> None:
        """End the present or the next ``poll`` at once."""
        _multi_wakeup(self._handle)

    def finished(self) -> list[tuple[int, int]]:
        """Return (pointer of the transfer, libcurl's code) for all that ended since the last call."""
        ended = []
        while message := _multi_info(self._handle, self._left_at):
            found = message.contents
            ended.append((found.easy, found.result))
        return ended


_check()
