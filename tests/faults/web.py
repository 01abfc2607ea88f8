"""A plain web server's words for the fault server: no credentials, ETags, and index pages as nginx writes them."""

from __future__ import annotations

from html import escape
from urllib.parse import quote, unquote

from penstock.stores.web.options import HTTPOptions
from penstock.testing.faults.dialect import Words, get
from penstock.testing.faults.message import Answer, Refused
from penstock.testing.faults.script import WITHOUT_REGIONS

__all__ = ["WORDS"]


def _get(dialect, bucket, request):
    return _index(bucket, request.key) if request.key.endswith("/") else get(dialect, bucket, request)


def _index(bucket, folder):
    """Return the index page of a folder: files with their sizes, and folders."""
    below = {key.removeprefix(folder): found for key, found in bucket.objects.items() if key.startswith(folder)}
    files = {name: len(found.data) for name, found in below.items() if "/" not in name}
    folders = {name.partition("/")[0] + "/" for name in below if "/" in name}
    lines = [f'<a href="{quote(name)}">{escape(name)}</a>  22-Nov-2026 10:00  -' for name in sorted(folders)]
    lines += [f'<a href="{quote(name)}">{escape(name)}</a>  22-Nov-2026 10:00  {files[name]}' for name in sorted(files)]
    title = f"Index of /{escape(folder)}"
    page = f'<html><head><title>{title}</title></head><body><h1>{title}</h1><hr><pre><a href="../">../</a>\n'
    page += "\n".join(lines) + "\n</pre><hr></body></html>\n"
    return Answer(200, {"Content-Type": "text/html"}, page.encode())


class _Web(Words):
    """Words without credentials, conditions and copies."""

    scheme = "http"
    prefix = "x-web-"

    def locate(self, request):
        """Serve the one bucket from the root."""
        request.bucket, request.key = "bucket", unquote(request.path.removeprefix("/"))

    def check(self, *_anything):
        """Accept every request."""

    hold = pin_source = check

    def pin(self, found, request):
        wanted = request.headers.get("if-match", "*")
        if wanted not in ("*", f'"{found.etag}"'):
            raise Refused(412, "Precondition Failed")

    def described(self, found):
        return {"ETag": f'"{found.etag}"'}

    written = listed = described

    def refused(self, error, _request):
        return Answer(error.status, {"Content-Type": "text/html"}, b"<html><body>no</body></html>")

    def store(self, _settings, _endpoint):
        return HTTPOptions()

    def environment(self, _settings, _endpoint):
        return {}


_VERBS = {"get": _get, "head": _get, "list": lambda _dialect, bucket, _request: _index(bucket, "")}
WORDS = _Web(_VERBS, WITHOUT_REGIONS)
