"""A real nginx over a folder: index pages in each of its forms, none, compression, and a password."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["PASSWORD", "USER", "Nginx", "missing", "nginx"]

USER, PASSWORD = "reader", "open-sesame"
_ANSWER_S = 10.0
_FORMS = {
    "index": "autoindex on;",
    "rounded": "autoindex on; autoindex_exact_size off;",
    "json": "autoindex on; autoindex_format json;",
    "bare": "",
    "zipped": "autoindex on; gzip on; gzip_min_length 1; gzip_types *; gzip_http_version 1.0;",
    "closed": 'autoindex on; auth_basic "private"; auth_basic_user_file passwords;',
}


@dataclass(frozen=True)
class Nginx:
    """A server: the folder it serves, and by form the address that it serves it under, ending in ``/``."""

    folder: Path
    roots: dict[str, str]


def missing() -> str:
    """Return what to install; empty when it is there."""
    return "" if _program() else "nginx is not installed: apt-get install nginx-light"


@contextmanager
def nginx(folder: Path) -> Iterator[Nginx]:
    """Serve ``folder/data`` in all forms until the block ends."""
    data = folder / "data"
    data.mkdir()
    (folder / "passwords").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
    with ExitStack() as stack:
        sockets = {form: stack.enter_context(_listening()) for form in _FORMS}
        ports = {form: each.getsockname()[1] for form, each in sockets.items()}
        servers = "".join(
            f"server {{ listen 127.0.0.1:{ports[form]}; root {data}; charset utf-8; {lines} }}\n"
            for form, lines in _FORMS.items()
        )
        user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
        temporary = " ".join(
            f"{each}_temp_path {folder}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        configuration = folder / "nginx.conf"
        configuration.write_text(
            f"{user} daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
            f"events {{ worker_connections 1024; }}\n"
            f"http {{ access_log off; {temporary} keepalive_requests 100000; large_client_header_buffers 8 32k;\n"
            f"{servers} }}\n"
        )
        descriptors = [each.fileno() for each in sockets.values()]
        # nginx takes over the listening sockets that its environment names, so the ports are free for certain.
        environment = {"PATH": os.environ["PATH"], "NGINX": "".join(f"{each};" for each in descriptors)}
        command = [str(_program()), "-c", str(configuration), "-e", str(folder / "error.log")]
        process = stack.enter_context(subprocess.Popen(command, env=environment, pass_fds=descriptors))
        stack.callback(process.terminate)
        for each in sockets.values():
            each.close()
        roots = {form: f"http://127.0.0.1:{port}/" for form, port in ports.items()}
        _wait(roots["index"], folder)
        yield Nginx(data, roots)


def _program() -> str | None:
    return shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def _listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=512)


def _wait(root: str, folder: Path) -> None:
    until = time.monotonic() + _ANSWER_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(root, timeout=_ANSWER_S):  # noqa: S310  ours
                return
        except HTTPError:
            return
        except (URLError, OSError):
            time.sleep(0.01)  # no socket of ours is told that a program has begun
    raise RuntimeError(f"nginx does not answer: {(folder / 'error.log').read_text()}")
