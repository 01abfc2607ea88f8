"""Few descriptors make fewer connections, none left is told as that, and ones closed from outside are noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.engine.transport import loop
from penstock.engine.transport.codes import advise_on_open_files
from penstock.engine.transport.loop import Token, room
from penstock.errors import Unreachable
from tests.children import python


def test_token_detects_a_closed_or_reused_descriptor(tmp_path):
    token = Token()
    assert token.there()
    os.close(token._descriptor)
    assert not token.there()
    other = os.open(tmp_path, os.O_RDONLY)
    assert other == token._descriptor, "the number is used again"
    assert not token.there()
    os.close(other)


def test_here_is_room():
    assert room() >= 4
    assert advise_on_open_files() == ""


# The server has a process of its own: what happens to this one's descriptors is none of its business.
_SERVED = """
import atexit, os, resource, sys, threading, time
from penstock.errors import Transient, Unreachable
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted, reply
from penstock.engine.transport.loop import connect
from tests.engine.transport.calls import carry, get

ready, told = os.pipe()
server_pid = os.fork()
if server_pid == 0:
    def script(received, send):
        if "slow" in received.path:
            time.sleep(0.5)
        send(reply(200, b"hello"))
        return True
    with Scripted(script) as server:
        os.write(told, server.url.encode())
        threading.Event().wait(60)
        os._exit(0)
atexit.register(os.kill, server_pid, 9)
url = os.read(ready, 100).decode()
"""

_CLOSED = """
session = connect(TransportOptions())
assert carry(session, get(url))[0].body == b"hello"
under_way = [get(url + "/slow") for _ in range(3)] if "under way" in sys.argv else []
session.submit(under_way)
time.sleep(0.2)  # the I/O thread waits for the network by now
os.closerange(3, 100)
files = [open(sys.argv[1], "r+b", buffering=0) for _ in range(30)] if "used again" in sys.argv else []
began = time.monotonic()
assert carry(session, get(url))[0].body == b"hello"
assert time.monotonic() - began < 10, time.monotonic() - began
for call in under_way:
    response = call.wait()
    assert isinstance(response.fault, Transient) or response.body == b"hello", response
for file in () if under_way else files:
    assert (file.tell(), file.read()) == (0, b"what was there"), "it is not the transport's to read or write"
assert [carry(session, get(url))[0].body for _ in range(3)] == [b"hello"] * 3
print("carried on")
"""


@pytest.mark.parametrize("under_way", ["idle", "under way"])
@pytest.mark.parametrize("after", ["left closed", "used again"])
def test_descriptors_closed_under_the_io_thread_are_noticed_within_seconds(tmp_path, under_way, after):
    (tmp_path / "file").write_bytes(b"what was there")
    ended = python(_SERVED + _CLOSED, str(tmp_path / "file"), under_way, after)
    assert ended.stdout == "carried on\n", ended.stderr


_FEW = """
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
sessions = [connect(TransportOptions()) for _ in range(3)]
assert all(32 <= session.concurrency() < 100 for session in sessions), [session.concurrency() for session in sessions]
calls = [get(url.replace("127.0.0.1", "localhost")) for _ in range(900)]
for number, session in enumerate(sessions):
    session.submit(calls[number::3])
most = 0
while not all(call.over() for call in calls):
    most = max(most, len(os.listdir("/proc/self/fd" if os.path.exists("/proc") else "/dev/fd")))
assert {call.wait().body for call in calls} == {b"hello"}
assert most < 200, "files of the user's can be opened, too"

open_files = []
try:
    while True:
        open_files.append(open(os.devnull))
except OSError:
    pass
for other in (url.replace("127.0.0.1", "127.0.0.2"), "https://127.0.0.1:1", "http://nowhere.invalid"):
    fault = carry(sessions[0], get(other))[0].fault
    assert type(fault) is Unreachable and "ulimit -n" in str(fault) and "256" in str(fault), fault
open_files.clear()
assert carry(sessions[0], get(url))[0].body == b"hello"
print("kept within it")
"""


def test_low_descriptor_limit_reduces_connections_and_exhaustion_raises_unreachable():
    ended = python(_SERVED + _FEW)
    assert ended.stdout == "kept within it\n", ended.stderr


def test_missing_descriptor_for_the_io_thread_raises_unreachable_naming_ulimit():
    script = """
        import resource
        from penstock.errors import Unreachable
        from penstock.options import TransportOptions
        from penstock.engine.transport.loop import connect
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 256))
        try:
            connect(TransportOptions())
        except Unreachable as error:
            print("ulimit -n" in str(error))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        connect(TransportOptions())
    """
    ended = python(script)
    assert ended.stdout == "True\n", ended.stderr


_NONE_LEFT = """
session = connect(TransportOptions())
assert carry(session, get(url))[0].body == b"hello"
under_way = get(url + "/slow")
session.submit([under_way])
while not session.handles.active:
    time.sleep(0.001)
most = resource.getrlimit(resource.RLIMIT_NOFILE)
os.closerange(3, 100)
for limit in range(3, 6):  # none left, or too few
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most[1]))
    for _ in range(3):
        fault = carry(session, get(url))[0].fault
        assert type(fault) is Unreachable and (limit > 3 or "ulimit -n" in str(fault)), fault
assert isinstance(under_way.wait().fault, Transient)
resource.setrlimit(resource.RLIMIT_NOFILE, most)
assert carry(session, get(url))[0].body == b"hello"
assert session._mailbox is connect(TransportOptions())._mailbox
print("carried on")
"""


def test_the_io_thread_outlives_a_time_without_descriptors_for_it():
    ended = python(_SERVED + _NONE_LEFT)
    assert ended.stdout == "carried on\n", ended.stderr


def test_opened_descriptors_are_closed_if_io_loop_setup_fails(monkeypatch):
    tried = loop._Loop()
    token, before = tried._token, len([*Path("/dev/fd").iterdir()])

    def failing(_most):
        raise MemoryError

    monkeypatch.setattr(loop, "Multi", failing)
    for _ in range(3):
        with pytest.raises(Unreachable, match="cannot make connections"):
            tried._renew()
    assert (tried._token, len([*Path("/dev/fd").iterdir()])) == (token, before)
    tried.close()
