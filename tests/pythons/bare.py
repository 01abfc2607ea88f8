"""The first minutes after `pip install penstock`, as a program that has only the wheel and its dependencies.

    python bare.py VERSION LIBRARIES…

It knows nothing of the checkout. ``LIBRARIES`` are modules of extras, which must not be installed.
"""

from __future__ import annotations

import http.server
import importlib.metadata
import importlib.util
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path

BODY = b"an object of a web server"


def main(version: str, *libraries: str) -> None:
    there = [name for name in libraries if importlib.util.find_spec(name)]
    assert not there, f"the environment is not bare: it has {there}"

    import penstock as ps

    home = Path(ps.__file__).parent
    assert home.parent == Path(sysconfig.get_path("purelib")), f"not the installed package: {home}"
    assert ps.__version__ == importlib.metadata.version("penstock") == version, ps.__version__
    assert (home / "py.typed").exists()
    licences = [each for each in importlib.metadata.files("penstock") or () if each.name == "LICENSE"]
    assert licences, "the wheel has no licence"

    with tempfile.TemporaryDirectory() as folder:
        for url in ("memory://bare/object", f"{folder}/object"):
            objects(ps, url)
        web(ps)
        extras(ps, folder)
    command()
    print(f"Python {sys.version.partition(' ')[0]}, penstock {version}: reads, writes and lists; extras are named")


def objects(ps, url: str) -> None:
    with ps.open(url, "wb") as file:
        file.write(b"written")
    with ps.open(url) as file:
        assert file.read() == b"written", url
    assert ps.stat(url).size == len(b"written"), url
    assert [each.key.rpartition("/")[2] for each in ps.list(url)] == ["object"], url
    catalog = ps.Catalog.scan(url.removesuffix("object"))
    assert len(catalog) == 1, url
    ps.delete(url)
    try:
        ps.stat(url)
    except ps.errors.NotFound:
        return
    raise AssertionError(f"{url} is still there")


class Page(http.server.SimpleHTTPRequestHandler):
    """One object, with ranges unknown to it, as the smallest servers have it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(BODY)

    do_HEAD = do_GET  # noqa: N815  the server looks for this name

    def log_message(self, *words: object) -> None:
        """Keep quiet."""


def web(ps) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with ps.open(f"http://127.0.0.1:{server.server_port}/object") as file:
            assert file.read() == BODY
        server.shutdown()


def extras(ps, folder: str) -> None:
    uses = {"torch": lambda: ps.save({}, f"{folder}/x"), "path": lambda: ps.Path}
    for extra, use in uses.items():
        try:
            told = str(use())
        except ps.errors.MissingExtra as error:
            told = str(error)
        assert f"pip install 'penstock[{extra}]'" in told, told


def command() -> None:
    """The command is installed with the package, and asks for its extra in one line."""
    path = Path(sys.executable).with_name("penstock")
    done = subprocess.run([path, "ls", "/"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.endswith("pip install 'penstock[cli]'\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


if __name__ == "__main__":
    main(*sys.argv[1:])
