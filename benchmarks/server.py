"""The load server: one nginx worker on loopback; GET, ranges too, by sendfile from a RAM disk, and uploads to it."""

from __future__ import annotations

import http.client
import os
import pwd
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.objects import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FILES", "Server", "install", "missing", "nginx_version", "serve"]

FILES = "files"  # a bucket
# A key that is a folder here is none to clients, as in a store.
_ABSENT = "error_page 301 @absent; location @absent { return 404; }"
_FIRST_BYTE_S = 0.03
_BACKLOG = 4096
_ANSWER_S = 10.0
_ECHO = "ngx_http_echo_module.so"  # the one that can wait before it answers
_SCRIPT = "ngx_http_js_module.so"  # answers what writing needs beside PUT
_HERE = Path(__file__).parent
_MODULES = (Path("/usr/lib/nginx/modules"), Path("/usr/share/nginx/modules"), Path("/usr/lib64/nginx/modules"))
_PROGRAMS = ("openssl", "setpriv")
_PACKAGES = "nginx-light libnginx-mod-http-echo libnginx-mod-http-js openssl util-linux"


@dataclass(frozen=True)
class Server:
    """Where each port answers: at once, 30 ms late, and over TLS with a certificate by ``ca``."""

    plain: str
    late: str
    tls: str
    ca: str


def missing() -> str:
    """Return what to install, as one sentence; empty when everything is there."""
    if _nginx() and _module(_ECHO) and _module(_SCRIPT) and all(map(shutil.which, _PROGRAMS)):
        return ""
    return f"the load server needs nginx with its echo and js modules, openssl and setpriv: apt-get install {_PACKAGES}"


def install() -> None:
    """Install what is missing where that is allowed: as root, on a Debian.

    Raises:
        SystemExit: It is missing, and may not or could not be installed.
    """
    message = missing()
    if message and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {_PACKAGES}", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *_PACKAGES.split()]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)
        message = missing()
    if message:
        raise SystemExit(message)


def nginx_version() -> str:
    """Return what ``nginx -v`` says."""
    answer = subprocess.run([str(_nginx()), "-v"], capture_output=True, text=True, check=True)
    return answer.stderr.strip().rpartition("/")[2]


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Serve ``folder/data`` on free ports until the block ends; the server ends with this process, however that ends.

    Uploads under ``written/`` leave their parts in ``folder/put`` and a note of each whole one in ``folder/complete``.
    The bucket ``FILES`` is plain files in ``folder/files``, and lists them; its ETags are times and sizes, in seconds.

    Raises:
        RuntimeError: nginx does not answer; the text holds its own words.
    """
    certificate, key = _certify(folder)
    for each in ("complete", FILES):
        (folder / each).mkdir(exist_ok=True)
    with ExitStack() as stack:
        sockets = [stack.enter_context(_listening()) for _ in range(3)]
        plain, late, tls = (each.getsockname()[1] for each in sockets)
        configuration = folder / "nginx.conf"
        ports = _Ports(plain, late, tls)
        configuration.write_text(_configuration(folder, ports, certificate, key))
        descriptors = [each.fileno() for each in sockets]
        # nginx takes over listening sockets its environment names (its way of replacing itself while it serves):
        # so the ports are free for certain, and the first connection waits instead of being refused.
        environment = {"PATH": os.environ["PATH"], "NGINX": "".join(f"{each};" for each in descriptors)}
        files = ["-c", str(configuration), "-e", str(folder / "error.log")]
        command = ["setpriv", "--pdeathsig", "TERM", str(_nginx()), *files]
        nginx = stack.enter_context(subprocess.Popen(command, env=environment, pass_fds=descriptors))
        stack.callback(_end, nginx)
        for each in sockets:
            each.close()
        server = Server(
            f"http://127.0.0.1:{plain}", f"http://127.0.0.1:{late}", f"https://127.0.0.1:{tls}", str(certificate)
        )
        _wait(server, folder)
        yield server


def _end(nginx: subprocess.Popen[bytes]) -> None:
    """End it, and wait: after a Ctrl-C ``Popen`` itself waits for a quarter of a second, whatever its process does."""
    nginx.terminate()
    nginx.wait()


@dataclass(frozen=True)
class _Ports:
    plain: int
    late: int
    tls: int


def _configuration(folder: Path, ports: _Ports, certificate: Path, key: Path) -> str:
    user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    writes = f"""
    set $folder {folder};
    location /{BUCKET}/written/ {{
      set $sent $request_method:$http_x_amz_copy_source:$arg_uploadId;
      if ($sent = PUT::) {{ rewrite ^ /put/$request_id/1 last; }}
      if ($sent ~ ^PUT::.) {{ rewrite ^ /put/$arg_uploadId/$arg_partNumber last; }}
      js_content uploads.answer; js_header_filter uploads.created;
    }}
    location = /{BUCKET} {{ js_content uploads.bucket; }}
    location = /{BUCKET}/ {{ js_content uploads.bucket; }}
    location = /{FILES} {{ js_content files.bucket; }}
    location = /{FILES}/ {{ js_content files.bucket; }}
    location /{FILES}/ {{
      root {folder}; dav_methods PUT DELETE; create_full_put_path on; js_header_filter files.stored;
    }}
    location /put/ {{
      internal; root {folder}; dav_methods PUT; create_full_put_path on; js_header_filter uploads.stored;
    }}"""
    return f"""
load_module {_module(_ECHO)}; load_module {_module(_SCRIPT)};
{user} daemon off; worker_processes 1; worker_rlimit_nofile 16384; pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; default_type application/octet-stream;
  sendfile on; tcp_nodelay on; keepalive_requests 10000000; keepalive_timeout 300;
  js_path {_HERE}; js_import uploads from uploads.js; js_import files from files.js;
  client_max_body_size 0; client_body_buffer_size 1m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  scgi_temp_path {folder}/scgi; uwsgi_temp_path {folder}/uwsgi;
  server {{ listen 127.0.0.1:{ports.plain} backlog={_BACKLOG}; root {folder}/data; {writes}
    {_ABSENT}
    add_header x-goog-generation $http_x_goog_if_generation_match; # Google's version, where one is asked for
    location /{BUCKET}/{BUCKET}/ {{ alias {folder}/data/{BUCKET}/; }} # Azure: an emulator has the account in its path
  }}
  server {{
    listen 127.0.0.1:{ports.late} backlog={_BACKLOG}; {_ABSENT}
    location / {{ echo_sleep {_FIRST_BYTE_S}; echo_exec /late$uri; }}
    location /late/ {{ internal; alias {folder}/data/; }}
  }}
  server {{
    listen 127.0.0.1:{ports.tls} ssl backlog={_BACKLOG}; root {folder}/data;
    ssl_certificate {certificate}; ssl_certificate_key {key}; {writes}
  }}
}}
"""


def _listening() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(_BACKLOG)
    return listener


def _certify(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, "-addext", names, *files], check=True, capture_output=True)
    return certificate, key


def _wait(server: Server, folder: Path) -> None:
    """Ask every port for something that is not there: its 404 says that nginx serves."""
    context = ssl.create_default_context(cafile=server.ca)
    for endpoint in (server.plain, server.late, server.tls):
        host = endpoint.partition("//")[2]
        connection = (
            http.client.HTTPSConnection(host, timeout=_ANSWER_S, context=context)
            if endpoint == server.tls
            else http.client.HTTPConnection(host, timeout=_ANSWER_S)
        )
        try:
            connection.request("GET", f"/{BUCKET}/none")
            status = connection.getresponse().status
        except OSError as error:
            log = folder / "error.log"
            said = log.read_text() if log.exists() else "(it left no log)"
            message = f"nginx does not serve {endpoint} ({error}): {said}"
            raise RuntimeError(message) from None
        finally:
            connection.close()
        assert status == http.client.NOT_FOUND, status


def _nginx() -> str | None:
    return shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


def _module(name: str) -> Path | None:
    return next((folder / name for folder in _MODULES if (folder / name).exists()), None)
