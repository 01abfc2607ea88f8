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
_RESPONSE_CODE, _HTTP_1_1, _MULTI_MAXCONNECTS = 0x200002, 2, 6
_HEADER_ORIGIN, _LAST_REQUEST = 1, -1
_FEATURE_SSL, _FEATURE_ASYNCHDNS = 1 << 2, 1 << 7
_OLDEST = (7, 87, 0)

_RECEIVE_BYTES = 128 << 10  # measured with 100 KiB objects: 16 KiB costs a third more CPU, 512 KiB gains nothing
_SEND_BYTES = 512 << 10
_DIRECT_BYTES = 4096  # below it the body is collected and copied, so that an error's text always has room
_GOOD = (200, 206)  # what a body in the destination may come with; any other status brings the text of an error
_ERROR_BYTES = 256  # CURL_ERROR_SIZE

_void, _int, _long, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_size_t


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


# Variadic functions declare their fixed arguments only and get explicit C values for the rest (arm64 needs that).
_global_init = _declare(_short, "curl_global_init", _int, _long)
_version_info = _declare(_short, "curl_version_info", ctypes.POINTER(_Version), _int)
_strerror = _declare(_short, "curl_easy_strerror", ctypes.c_char_p, _int)
_easy_init = _declare(_short, "curl_easy_init", _void)
_easy_reset = _declare(_short, "curl_easy_reset", None, _void)
_setopt = _declare(_short, "curl_easy_setopt", _int, _void, _int)
_getinfo = _declare(_short, "curl_easy_getinfo", _int, _void, _int)
_easy_header = _declare(
    _short,
    "curl_easy_header",
    _int,
    _void,
    ctypes.c_char_p,
    _size,
    ctypes.c_uint,
    _int,
    ctypes.POINTER(ctypes.POINTER(_Header)),
)
_easy_nextheader = _declare(
    _short, "curl_easy_nextheader", ctypes.POINTER(_Header), _void, ctypes.c_uint, _int, ctypes.POINTER(_Header)
)
_slist_append = _declare(_short, "curl_slist_append", _void, _void, ctypes.c_char_p)
_slist_free = _declare(_short, "curl_slist_free_all", None, _void)
_multi_init = _declare(_short, "curl_multi_init", _void)
_multi_setopt = _declare(_short, "curl_multi_setopt", _int, _void, _int)
_multi_add = _declare(_short, "curl_multi_add_handle", _int, _void, _void)
_multi_remove = _declare(_short, "curl_multi_remove_handle", _int, _void, _void)
_multi_remove_waiting = _declare(_waiting, "curl_multi_remove_handle", _int, _void, _void)
_multi_info = _declare(_short, "curl_multi_info_read", ctypes.POINTER(_Message), _void, ctypes.POINTER(_int))
_multi_wakeup = _declare(_short, "curl_multi_wakeup", _int, _void)
_multi_perform = _declare(_waiting, "curl_multi_perform", _int, _void, ctypes.POINTER(_int))
_multi_poll = _declare(_waiting, "curl_multi_poll", _int, _void, _void, ctypes.c_uint, _int, ctypes.POINTER(_int))

_fmemopen = _declare(_libc, "fmemopen", _void, _void, _size, ctypes.c_char_p)
_open_memstream = _declare(_libc, "open_memstream", _void, ctypes.POINTER(_void), ctypes.POINTER(_size))
_setvbuf = _declare(_libc, "setvbuf", _int, _void, _void, _int, _size)
_ftell = _declare(_libc, "ftell", _long, _void)
_fclose = _declare(_libc, "fclose", _int, _void)
_fwrite = _declare(_libc, "fwrite", _size, ctypes.c_char_p, _size, _size, _void)
_free = _declare(_libc, "free", None, _void)
_memset = _declare(_libc, "memset", _void, _void, _int, _size)  # ctypes.memset drops the GIL
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


def _over(address: int, size: int) -> int:
    """Open an unbuffered stream that writes into ``[address, address + size)`` and nowhere else.

    Mode "r+", not "w": with "w" glibc (2.36) writes a terminating NUL over the last byte of a region that has just
    been filled, so every object's last byte would be lost. "r+" measures what is there with ``strnlen`` first, hence
    the NUL at the start.
    """
    _memset(address, 0, 1)
    stream: int = _fmemopen(address, size, b"r+")
    _setvbuf(stream, None, _UNBUFFERED, 0)
    return stream


class Easy:
    """One reusable transfer, configured once per store and loaded with a request at a time."""

    __slots__ = (
        "_clean",
        "_errors",
        "_headers",
        "_kept",
        "_memory",
        "_options",
        "_status",
        "_stream",
        "pointer",
        "request",
    )

    def __init__(self, options: TransportOptions) -> None:
        """Create the handle; raises MemoryError where libcurl cannot."""
        self.pointer: int | None = _easy_init()
        if not self.pointer:
            raise MemoryError
        self._options = options
        self._errors = ctypes.create_string_buffer(_ERROR_BYTES)
        self._status = _long()
        self._stream: int | None = None
        self._memory: tuple[ctypes.c_void_p, ctypes.c_size_t] | None = None
        self._headers: int | None = None
        self._kept: object = None
        self.request: Request | None = None
        self._clean = False
        self._configure()

    def _configure(self) -> None:
        """Set what does not change from request to request."""
        options = self._options
        handle = self.pointer
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
        self._clean = True

    def load(self, request: Request, *, fresh: bool) -> None:
        """Take the next request; ``fresh`` demands a new connection."""
        handle = self.pointer
        url, lines = request.url.encode("ascii"), [line.encode("latin-1") for line in request.headers]
        if b"\n" in (text := b"".join(lines)) or b"\r" in text:  # an ETag from a stranger's manifest, say
            raise Unusable("a header cannot hold a line break")
        if not self._clean:
            _easy_reset(handle)
            self._configure()
        self.request = request
        if request.method != "GET" or fresh:
            self._load_method(request, fresh=fresh)
        _setopt(handle, _URL, ctypes.c_char_p(url))
        chain = None
        for line in lines:
            chain = _slist_append(chain, line)
        self._headers = chain
        _setopt(handle, _HTTPHEADER, _void(chain))
        self._open(request.target)

    def _load_method(self, request: Request, *, fresh: bool) -> None:
        """Set up what the next GET must not inherit; the handle is reset after it."""
        handle = self.pointer
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
        _setopt(self.pointer, _WRITEDATA, _void(self._stream))

    def unload(self, *, whole: bool = False) -> Response:
        """Close what ``load`` opened and return what came back; faults are the caller's to add.

        Unless the exchange is ``whole``, all headers are kept, for they may say what went wrong.
        """
        request = self.request
        if request is None:
            message = "unload without load"
            raise Bug(message)
        response = Response()
        _getinfo(self.pointer, _RESPONSE_CODE, ctypes.byref(self._status))
        response.status = self._status.value
        self._close(request.target, response)
        whole = whole and (request.target is None or response.received == request.target.size)
        if request.wants is None or not whole or response.status not in _GOOD:
            response.headers = self._all_headers()
        else:
            for name in request.wants:
                value = self._header(name.encode())
                if value is not None:
                    response.headers[name] = value
        _slist_free(self._headers)
        self._headers = self._kept = self.request = None
        return response

    def _header(self, name: bytes) -> str | None:
        found = ctypes.POINTER(_Header)()
        if _easy_header(self.pointer, name, 0, _HEADER_ORIGIN, _LAST_REQUEST, found) != OK:
            return None
        value: bytes = found.contents.value
        return value.decode("latin-1")

    def _all_headers(self) -> dict[str, str]:
        headers, found = {}, None
        while found := _easy_nextheader(self.pointer, _HEADER_ORIGIN, _LAST_REQUEST, found):
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

    __slots__ = ("_left", "_running", "pointer")

    def __init__(self, connections: int) -> None:
        """Create the set; ``connections`` idle ones are kept for reuse."""
        self.pointer: int | None = _multi_init()
        if not self.pointer:
            raise MemoryError
        self._running, self._left = _int(), _int()
        _multi_setopt(self.pointer, _MULTI_MAXCONNECTS, _long(connections))

    def add(self, easy: Easy) -> None:
        """Start a loaded transfer at the next ``perform``."""
        code = _multi_add(self.pointer, easy.pointer)
        if code != OK:
            message = f"curl_multi_add_handle: {code}"
            raise Bug(message)

    def remove(self, easy: Easy, *, unfinished: bool = False) -> None:
        """Take a transfer out; an unfinished one closes its connection, which may take a moment."""
        (_multi_remove_waiting if unfinished else _multi_remove)(self.pointer, easy.pointer)

    def perform(self) -> None:
        """Move what can be moved without waiting."""
        _multi_perform(self.pointer, self._running)

    def poll(self, timeout_ms: int) -> None:
        """Wait until something can be moved, ``wakeup`` is called, or the time is over."""
        _multi_poll(self.pointer, None, 0, timeout_ms, None)

    def wakeup(self) -> None:
        """End the present or the next ``poll`` at once."""
        _multi_wakeup(self.pointer)

    def finished(self) -> list[tuple[int, int]]:
        """Return (pointer of the transfer, libcurl's code) for all that ended since the last call."""
        ended = []
        while message := _multi_info(self.pointer, self._left):
            ended.append((message.contents.easy, message.contents.result))
        return ended


_check()
