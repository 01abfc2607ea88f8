"""No Python code runs on libcurl's thread per chunk, and the binding knows which libcurl this is."""

import ctypes
import re
from pathlib import Path

from penstock.transport import libcurl
from penstock.transport.libcurl import version


def test_trap_15_no_python_runs_for_a_chunk():
    # A callback would need one of ctypes' function types; the binding declares none.
    source = "".join(path.read_text("utf-8") for path in Path(libcurl.__file__).parent.glob("*.py"))
    assert not re.search(r"CFUNCTYPE|PYFUNCTYPE|WRITEFUNCTION", source)
    assert isinstance(libcurl._waiting, ctypes.CDLL)
    assert not isinstance(libcurl._waiting, ctypes.PyDLL)


def test_the_version_names_the_tls_library():
    assert re.match(r"\d+\.\d+\.\d+.* \w+", version())
