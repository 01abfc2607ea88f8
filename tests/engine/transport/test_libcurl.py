"""No Python code runs on libcurl's thread per chunk, and the binding knows which libcurl this is."""

import ctypes
import re
from pathlib import Path

from penstock.engine.transport import libcurl
from penstock.engine.transport.libcurl import version


def test_trap_15_no_python_runs_for_a_chunk():
    # A callback needs one of ctypes' function types: there is one, which libcurl calls once for a connection.
    source = "".join(path.read_text("utf-8") for path in Path(libcurl.__file__).parent.glob("*.py"))
    assert not re.search(r"PYFUNCTYPE|(WRITE|READ|HEADER|XFERINFO|PROGRESS|DEBUG)FUNCTION", source)
    assert re.findall(r"CFUNCTYPE.*\n(?:#.*\n)*def (\w+)", source) == ["_open_public"]
    assert source.count("CFUNCTYPE") == 1
    assert isinstance(libcurl._waiting, ctypes.CDLL)
    assert not isinstance(libcurl._waiting, ctypes.PyDLL)


def test_the_version_names_the_tls_library():
    assert re.match(r"\d+\.\d+\.\d+.* \w+", version())
