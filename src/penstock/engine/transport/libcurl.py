"""Binding to libcurl: finds and loads the library, checks its version, and declares its functions.

Calls that wait or move bytes use ``_waiting`` and release the GIL. Short calls use ``_short`` and keep it, so that a
poll cycle acquires the GIL twice instead of once per option. While another thread is busy in Python, each acquisition
costs up to 5 ms.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.engine.transport.stream import Pointer
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

OK: Final = 0
_FEATURE_SSL, _FEATURE_ASYNCHDNS = 1 << 2, 1 << 7
_OLDEST = (7, 87, 0)

_void, _int, _long, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_size_t


class HeaderLine(ctypes.Structure):
    """A node of libcurl's list of header lines (``struct curl_slist``)."""

    _fields_ = (("data", ctypes.c_char_p), ("next", _void))


class Message(ctypes.Structure):
    """Message about a transfer (``struct CURLMsg``); ``multi_info`` returns its address, or None."""

    _fields_ = (("kind", _int), ("easy", _void), ("result", _long))


class Header(ctypes.Structure):
    """A header of a response (``struct curl_header``)."""

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
    """Yield possible paths of libcurl, best first: the copy inside pycurl's wheel, then the system's."""
    spec = find_spec("pycurl")
    if spec is not None and spec.origin is not None:
        for home in Path(spec.origin).parents[:2]:
            for pattern in ("pycurl.libs/libcurl*", ".dylibs/libcurl*", "pycurl/.dylibs/libcurl*"):
                yield from map(str, sorted(home.glob(pattern)))
    found = ctypes.util.find_library("curl")
    if found is not None:
        yield found
    yield "libcurl.so.4" if sys.platform != "darwin" else "libcurl.4.dylib"


def _load_libcurl() -> tuple[ctypes.PyDLL, ctypes.CDLL]:
    """Load libcurl twice: one handle keeps the GIL during calls, the other releases it."""
    failures = []
    for path in _candidates():
        try:
            return ctypes.PyDLL(path), ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    message = f"no libcurl found; `pip install pycurl` includes it ({'; '.join(failures)})"
    raise ConfigError(message)


_short, _waiting = _load_libcurl()


def _declare(owner: ctypes.CDLL, name: str, result: object, *arguments: object) -> ctypes._FuncPointer:
    function: ctypes._FuncPointer = owner[name]
    function.restype = result  # type: ignore[assignment]
    function.argtypes = arguments  # type: ignore[assignment]
    return function


def _hot(owner: ctypes.CDLL, name: str, result: object, *, variadic: bool = False) -> ctypes._FuncPointer:
    """Bind a function without argument types, whose check costs as much as a call: C ints, bytes and ctypes only."""
    function = _declare(owner, name, result)
    # Apple's arm64 passes the variable arguments of a variadic function differently from the fixed ones.
    function.argtypes = (_void, _int) if variadic and sys.platform == "darwin" else None  # type: ignore[assignment]
    return function


_global_init = _declare(_short, "curl_global_init", _int, _long)
_version_info = _declare(_short, "curl_version_info", ctypes.POINTER(_Version), _int)
strerror = _declare(_short, "curl_easy_strerror", ctypes.c_char_p, _int)
easy_init = _declare(_short, "curl_easy_init", Pointer)
easy_cleanup = _declare(_short, "curl_easy_cleanup", None, _void)
easy_reset = _declare(_short, "curl_easy_reset", None, _void)
setopt = _hot(_short, "curl_easy_setopt", _int, variadic=True)
getinfo = _hot(_short, "curl_easy_getinfo", _int, variadic=True)
easy_header = _hot(_short, "curl_easy_header", _int)
easy_nextheader = _declare(
    _short, "curl_easy_nextheader", ctypes.POINTER(Header), _void, ctypes.c_uint, _int, ctypes.POINTER(Header)
)
multi_init = _declare(_short, "curl_multi_init", Pointer)
multi_setopt = _hot(_short, "curl_multi_setopt", _int, variadic=True)
multi_add = _hot(_short, "curl_multi_add_handle", _int)
multi_remove = _hot(_short, "curl_multi_remove_handle", _int)
multi_remove_waiting = _hot(_waiting, "curl_multi_remove_handle", _int)
multi_info = _hot(_short, "curl_multi_info_read", _void)
multi_wakeup = _declare(_short, "curl_multi_wakeup", _int, _void)
multi_perform = _declare(_waiting, "curl_multi_perform", _int, _void, ctypes.POINTER(_int))
share_init = _declare(_short, "curl_share_init", Pointer)
share_setopt = _hot(_short, "curl_share_setopt", _int, variadic=True)
share_cleanup = _declare(_waiting, "curl_share_cleanup", _int, _void)
multi_poll = _declare(_waiting, "curl_multi_poll", _int, _void, _void, ctypes.c_uint, _int, ctypes.POINTER(_int))


def version() -> str:
    """Return libcurl's version and TLS library, such as ``8.23.0 OpenSSL/3.6.5``."""
    info = _version_info(0).contents
    return f"{info.text.decode()} {(info.tls or b'no TLS').decode()}"


def _check_libcurl() -> None:
    """Raise ConfigError, before the first use, if libcurl lacks TLS or a threaded resolver or is older than 7.87."""
    _global_init(3)  # CURL_GLOBAL_DEFAULT
    info = _version_info(0).contents
    number = (info.number >> 16 & 255, info.number >> 8 & 255, info.number & 255)
    if number < _OLDEST or not info.features & _FEATURE_SSL or not info.features & _FEATURE_ASYNCHDNS:
        needs = "TLS, a threaded resolver and version 7.87 are needed; `pip install -U pycurl`"
        message = f"libcurl {version()} is not supported: {needs}"
        raise ConfigError(message)


_check_libcurl()


_SHARE, _CONNECTIONS = 1, 5  # CURLSHOPT_SHARE and CURL_LOCK_DATA_CONNECT, from curl/curl.h


class ConnectionPool:
    """Connections kept for reuse. libcurl needs no locks for them, because only one thread uses them."""

    __slots__ = ("handle",)

    def __init__(self) -> None:
        self.handle: Pointer = share_init()
        if not self.handle or share_setopt(self.handle, _SHARE, ctypes.c_int(_CONNECTIONS)) != 0:
            raise MemoryError

    def close(self) -> None:
        """Close all connections. The handles that shared them must have been freed before."""
        share_cleanup(self.handle)
