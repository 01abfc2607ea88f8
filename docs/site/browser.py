"""Chromium's view of each page, at two widths, light and dark: nothing overflows, nothing is faint, no error is logged.

Chromium speaks its DevTools protocol over two pipes, so that no library and no driver is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDTHS = (360, 1440)
SCHEMES = ("light", "dark")
LOOK = Path(__file__).with_name("look.js")


class Browser:
    """A tab of Chromium. Answers and events come over one pipe; events wait in ``events`` until they are taken."""

    def __init__(self, send: BinaryIO, receive: BinaryIO) -> None:
        self._send, self._receive = send, receive
        self._number, self._rest, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command; return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"Chromium refused {method}: {answer['error']['message']}")
        return answer["result"]

    def wait(self, method: str) -> None:
        """Wait for an event."""
        while not any(each["method"] == method for each in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = self._receive.read(1 << 16)
            if not piece:
                raise RuntimeError("Chromium ended early")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def faults(self, page: Path) -> list[str]:
        """Return what is wrong with a page."""
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait("Page.loadEventFired")
        found = []
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            self.call("Emulation.setDeviceMetricsOverride", **size)
            for scheme in SCHEMES:
                self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                answer = self.call("Runtime.evaluate", expression=LOOK.read_text("utf-8"), returnByValue=True)
                if "exceptionDetails" in answer:
                    raise RuntimeError(f"look.js failed: {answer['exceptionDetails']}")
                found += [f"{scheme}, {width} px: {each}" for each in answer["result"]["value"]]
        return found + [f"console: {each}" for each in map(_logged, self.events) if each]


def _logged(event: dict[str, Any]) -> str:
    """Return the text of an error that a page logged; "" for another event."""
    found = event.get("params", {})
    match event["method"]:
        case "Runtime.exceptionThrown":
            return found["exceptionDetails"]["text"]
        case "Runtime.consoleAPICalled" if found["type"] in ("error", "assert"):
            return str([each.get("value") for each in found["args"]])
        case "Log.entryAdded" if found["entry"]["level"] == "error":
            return f"{found['entry']['text']} {found['entry'].get('url', '')}"
    return ""


@contextmanager
def opened(program: str) -> Iterator[Browser]:
    """Start Chromium, and end it."""
    (theirs, send), (receive, other) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        options += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"]
        # The protocol's pipes are file descriptors 3 and 4.
        script = f'exec 13<&{theirs} 14>&{other} 3<&13 4>&14; exec "$0" "$@"'
        command = ["bash", "-c", script, program, *options]
        process = subprocess.Popen(command, pass_fds=(theirs, other), stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(other)
        try:
            with os.fdopen(send, "wb", buffering=0) as requests, os.fdopen(receive, "rb", buffering=0) as answers:
                yield Browser(requests, answers)
        finally:
            process.terminate()
            process.wait()


def faults(html: Path) -> list[str]:
    """Return what is wrong with any page of a site; say so where no Chromium is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        print("not looked at: no Chromium is installed (Debian: chromium-headless-shell)")
        return ["no Chromium"] if os.environ.get("PENSTOCK_REQUIRE_SERVERS") == "1" else []
    found = []
    with opened(program) as browser:
        for page in sorted(html.rglob("*.html")):
            found += [f"{page.relative_to(html)}: {each}" for each in browser.faults(page)]
    return found
