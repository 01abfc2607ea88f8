"""A name server that never answers: reads end in time, other stores go on, and Ctrl-C and the exit wait for nothing.

In a network and a mount namespace (``unshare``), with the libcurl of pycurl's wheel and with the system's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

PATIENCE_S, CONNECT_S = 8.0, 2.0
# Each waits in its resolver threads for 150 s: more threads than the 20 that libcurl has by default.
READS = 24
LIBRARIES = ("wheel", "system")
BUSY_S = 1.0  # what a busy machine adds
PROGRAM = r"""
import importlib.util, json, os, signal, socket, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic

hosts, servers, library, mode, patience_s, connect_s, reads = sys.argv[1:]
with open(hosts, "w") as file:
    for at in ("127.0.0.1", "::1"):
        file.writelines(f"{at} {name}\n" for name in ("localhost", *(f"other{n}.example" for n in range(1000))))
with open(servers, "w") as file:
    file.write("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
commands = (f"mount --bind {hosts} /etc/hosts", f"mount --bind {servers} /etc/resolv.conf")
for command in ("ip link set lo up", *commands):
    subprocess.run(command.split(), check=True)
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 53))

if library == "system":
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *more: None if name == "pycurl" else find(name, *more)
import penstock as ps
from penstock.errors import ConfigError, PenstockError
try:
    from penstock.engine.transport.libcurl import version
except ConfigError as error:
    print("skip", error)
    raise SystemExit

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"data")
    do_HEAD = do_GET
    def log_message(self, *_): pass
class Server(ThreadingHTTPServer):
    daemon_threads = True
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()

retry = ps.RetryOptions(patience_s=float(patience_s), first_contact_s=float(patience_s))
store = ps.HTTPOptions(retry=retry, transport=ps.TransportOptions(connect_timeout_s=float(connect_s)))
def read(host):
    began = monotonic()
    try:
        found = ps.open(f"http://{host}/key", store=store).read().decode()
    except (PenstockError, KeyboardInterrupt) as error:
        found = type(error).__name__
    return found, monotonic() - began

def other(number):
    return read(f"other{number}.example:{server.server_port}")

told = {"version": version(), "first": other(0)}
if mode == "interrupt":
    pressed = []
    def press():
        silent.recv(512)  # it waits for the answer to this
        pressed.append(monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press, daemon=True).start()
    told["found"] = read("silent.example")[0]
    told["after_s"] = monotonic() - pressed[0]
else:
    stalled, others = [], []
    work = lambda: stalled.append(read("silent.example"))
    threads = [threading.Thread(target=work, daemon=True) for _ in range(int(reads))]
    for thread in threads:
        thread.start()
    silent.recv(512)
    while any(thread.is_alive() for thread in threads) and len(others) < 990:
        others.append(other(1 + len(others)))
        threads[0].join(0.1)
    for thread in threads:
        thread.join()
    told |= {"stalled": stalled, "others": others}
print(json.dumps(told | {"left_at": monotonic()}))
"""


def _possible():
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("root alone makes networks")
    if subprocess.run(["unshare", "-nm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine makes no network of its own")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run the program in each mode with each library, side by side: they wait, each in a network of its own."""
    _possible()
    runs = [(library, mode) for library in LIBRARIES for mode in ("read", "interrupt")]
    folders = [tmp_path_factory.mktemp("-".join(each)) for each in runs]
    with ThreadPoolExecutor(len(runs)) as pool:
        return {each: pool.submit(_run, folder, *each) for each, folder in zip(runs, folders, strict=True)}


def _run(folder, library, mode):
    """Return what the program tells, and the seconds that its exit took."""
    files = [folder / name for name in ("program.py", "hosts", "resolv.conf")]
    for file in files:
        file.write_text("")
    files[0].write_text(PROGRAM)
    environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    ended = subprocess.run(
        ["unshare", "-nm", sys.executable, *files, library, mode, f"{PATIENCE_S}", f"{CONNECT_S}", f"{READS}"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    ended_at = time.monotonic()
    if ended.stdout.startswith("skip "):
        pytest.skip(ended.stdout)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    print(told["version"])
    return told, ended_at - told["left_at"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_silent_name_server_ends_reads_in_time_and_leaves_other_stores_alone(ran, library):
    told, exit_s = ran[library, "read"].result()
    assert [found for found, _ in told["stalled"]] == ["TimedOut"] * READS
    assert max(took_s for _, took_s in told["stalled"]) <= 1.25 * PATIENCE_S + BUSY_S
    # Each host is a new one, whose name has to be looked up while the others wait.
    assert {found for found, _ in told["others"]} == {"data"}
    assert max(took_s for _, took_s in told["others"]) <= CONNECT_S
    assert len(told["others"]) >= PATIENCE_S
    assert exit_s <= 1 + BUSY_S


@pytest.mark.parametrize("library", LIBRARIES)
def test_interrupt_ends_a_read_that_waits_for_a_name_and_then_the_program(ran, library):
    told, exit_s = ran[library, "interrupt"].result()
    assert told["found"] == "KeyboardInterrupt"
    assert told["after_s"] <= 1.0
    assert exit_s <= 1 + BUSY_S
