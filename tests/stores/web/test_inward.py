"""A redirect of a public server reaches no private address, however that is written or resolved.

In a network of its own (``unshare``), where this machine has a public address too, and in which names resolve as told.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = r"""
import subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import socket

hosts = sys.argv[1]
def resolve(**names):
    with open(hosts, "w") as file:
        file.writelines(f"{at} {name}.example\n" for name, ats in names.items() for at in ats.split())
        file.write("127.0.0.1 localhost\n::1 localhost\n")

NAMES = dict(here="8.8.4.4", other="8.8.8.8", inward="127.0.0.1", six="::1", mapped="::ffff:127.0.0.1",
    meta="169.254.169.254", private="10.1.2.3", rebinding="8.8.4.4", both="127.0.0.1 8.8.4.4")
resolve(**NAMES)
MINE = ("8.8.4.4", "8.8.8.8", "169.254.169.254", "10.1.2.3")
commands = [f"ip addr add {each}/32 dev lo" for each in MINE]
for command in ("ip link set lo up", *commands, f"mount --bind {hosts} /etc/hosts"):
    subprocess.run(command.split(), check=True)

received, targets = [], {}
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        received.append(self.path)
        target = targets.get(self.path)
        if self.path.startswith("/rebind"):
            resolve(**NAMES | {"rebinding": "127.0.0.1"})
        body = b"" if target else b"data" if self.path == "/data" else b"secret"
        self.send_response(302 if target else 200)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
    do_HEAD = do_GET
    def log_message(self, *_): pass
class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
ports = []
for _ in range(2):
    server = Server(("::", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ports.append(server.server_address[1])
port, other = ports

import penstock as ps
from penstock.errors import ConfigError
quick = ps.HTTPOptions(retry=ps.RetryOptions(attempts=2))
def read(url):
    return ps.open(url, store=quick).read()

FORMS = ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "localhost", "localhost.", "127.0.0.1", "127.0.0.1.",
    "[::1]", "[::ffff:127.0.0.1]", "[::]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254",
    "2852039166", "10.1.2.3", "inward.example", "INWARD.example", "six.example", "mapped.example", "meta.example",
    "private.example"]
for number, form in enumerate(FORMS):
    path = f"/{number}"
    targets[path] = f"http://{form}:{other}/secret"
    try:
        found = read(f"http://here.example:{port}{path}")
    except ps.PenstockError as error:
        assert type(error) is ConfigError, (form, repr(error))
        assert "private network" in str(error), (form, str(error))
    else:
        raise AssertionError((form, found))
targets["/rebind"] = f"http://rebinding.example:{other}/secret"
try:
    raise AssertionError(read(f"http://rebinding.example:{port}/rebind"))
except ConfigError as error:
    assert "stands for an address of this machine" in str(error), error
# By way of another public server.
targets["/twice"], targets["/again"] = f"http://other.example:{port}/again", f"http://inward.example:{other}/secret"
try:
    raise AssertionError(read(f"http://here.example:{port}/twice"))
except ConfigError as error:
    assert "stands for an address of this machine" in str(error), error
assert "/secret" not in received, received

for number, place in enumerate(["8.8.8.8", "other.example", "here.example", "both.example"]):
    targets[f"/good{number}"] = f"http://{place}:{other}/data"
    assert read(f"http://here.example:{port}/good{number}") == b"data", place
# Within a private network, and from a name that stands for a private address, as before.
targets["/near"] = f"http://inward.example:{other}/data"
assert read(f"http://private.example:{port}/near") == b"data"
assert read(f"http://127.0.0.1:{port}/near") == b"data"
print("all done")
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="root alone makes networks")
def test_no_redirect_of_a_public_server_reaches_a_private_address(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "hosts").write_text("")
    if subprocess.run(["unshare", "-nm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine makes no network of its own")
    environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    told = subprocess.run(
        ["unshare", "-nm", sys.executable, tmp_path / "program.py", tmp_path / "hosts"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.stdout == "all done\n", told.stderr
