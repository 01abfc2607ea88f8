"""The demo: fill a bucket, train, kill the training in the middle of an epoch, resume, test, report."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.demo import EPOCHS
from penstock.demo.digits import COUNT, upload
from penstock.demo.life import live
from penstock.demo.screen import Screen
from penstock.demo.server import borrowed, embedded
from penstock.demo.tally import Pace, Tally
from penstock.demo.train import SEED
from penstock.errors import ConfigError, MissingExtra, PenstockError
from penstock.testing.faults.dialects import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["Demo"]

_LEAST_ACCURACY = 0.95
_NEEDED = {"torch": "torch", "sklearn": "scikit-learn", "PIL": "pillow", "rich": "rich"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What to demonstrate on.

    Attributes:
        bucket: One of the user's, or its URL; None for one on a server of the demo's own.
        provider: What the demo's own server speaks: a dialect of ``penstock.testing.faults``; default ``s3``.
        endpoint: Where the user's bucket is; default what the environment says, then AWS.
        epochs: How often each training image is seen.
        keep: Leave everything in the user's bucket.

    """

    bucket: str | None = None
    provider: str | None = None
    endpoint: str | None = None
    epochs: int = EPOCHS
    keep: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.bucket is None and (self.endpoint is not None or self.keep):
            raise ConfigError("--endpoint and --keep are for a bucket of yours: name it with --bucket")
        if self.bucket is not None and self.provider is not None:
            raise ConfigError("--provider is for the demo's own server; a bucket of yours is named by URL: gs://bucket")
        if self.provider is not None and self.provider not in DIALECTS:
            raise ConfigError(f"the demo's own server speaks {', '.join(DIALECTS)}, not {self.provider!r}")

    def run(self) -> None:
        """Run the demo and print its progress: half a minute or so.

        Raises:
            MissingExtra: Something it needs is not installed.
            PenstockError: It did not go well; a test accuracy below 95 % counts as that.

        """
        missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
        if missing:
            raise MissingExtra(f"the demo needs {', '.join(missing)}: pip install 'penstock[demo]'")
        began = perf_counter()
        with self._place() as url:
            story = _Story(url, self._server(), self.epochs)
            story.fill()
            story.train()
            story.report(perf_counter() - began, self._fate())
        if story.tally.accuracy < _LEAST_ACCURACY:
            raise PenstockError(f"a test accuracy of {story.tally.accuracy:.1%} is below {_LEAST_ACCURACY:.0%}")

    def _place(self) -> AbstractContextManager[str]:
        return borrowed(self.bucket, self.endpoint, keep=self.keep) if self.bucket else embedded(self.provider or "s3")

    def _server(self) -> str:
        if self.bucket is None:
            return "Penstock's own test server, in memory, in a process of its own"
        return self.endpoint or "what the environment says, or AWS"

    def _fate(self) -> str:
        if self.bucket is None:
            return "it goes with the demo's server"
        return "it stays" if self.keep else "it is deleted now; --keep leaves it"


class _Story:
    """One run at one place."""

    def __init__(self, url: str, server: str, epochs: int) -> None:
        """Begin."""
        self.tally = Tally()
        self._url = url
        self._epochs = epochs
        self._killed = ""
        self._screen = Screen()
        self._screen.title("Penstock: train from a bucket, kill the training, resume it")
        self._screen.say("server", server)
        self._screen.say("bucket", url)
        self._screen.say("seed", str(SEED))

    def fill(self) -> None:
        """Put the images there."""
        began = perf_counter()
        with self._screen.bar("uploading", COUNT) as show:
            size_bytes = upload(self._url, show)
        words = f"{COUNT:,} images as PNG, {size_bytes:,} bytes, in {perf_counter() - began:.1f} s"
        self._screen.say("uploaded", words)

    def train(self) -> None:
        """Train in one process until that is killed in the middle of an epoch, and in a second one to the end."""
        tally = self.tally
        with self._screen.bar("training", self._epochs) as show:
            self._live(show, lambda: tally.step >= (self._epochs // 2) * tally.batches + tally.batches // 2)
            self._killed = tally.place(tally.step)
            self._screen.say("killed", f"{self._killed}: SIGKILL")
            self._live(show, lambda: False)

    def _live(self, show: Callable[[float], None], doomed: Callable[[], bool]) -> None:
        """Follow one process of the training to its end, or until it is ``doomed``."""
        tally = self.tally
        with closing(live(self._url, self._epochs, doomed)) as reports:
            for report in reports:
                tally.hear(report)
                show(tally.step / tally.batches)
                if "ready" in report:
                    begin = f"resumes {tally.place(tally.began)}" if tally.began else "begins, on one thread"
                    self._screen.say("training", f"a new process {begin}")
                elif "pace" in report:
                    epoch, pace = report["epoch"], Pace(*report["pace"])
                    self._screen.say(f"epoch {epoch + 1}", f"loss {tally.loss(epoch):.4f}, {pace}")

    def report(self, elapsed_s: float, fate: str) -> None:
        """Sum up."""
        tally, say = self.tally, self._screen.say
        missed, repeated = tally.delivered(self._epochs)
        self._screen.title(f"Report, after {elapsed_s:.0f} s")
        say("accuracy", f"{tally.accuracy:.1%} of the test images")
        say("reading", str(tally.pace))
        say("killed", f"once, {self._killed}")
        alike = f"{tally.alike} of {tally.again} batches trained again had the very same images and loss"
        say("resumed", f"{tally.place(tally.began)}; {alike}")
        say(
            "delivered",
            f"{tally.images:,} images in each of {self._epochs} epochs: {missed} missed, {repeated} repeated",
        )
        say("checkpoints", f"{self._url}checkpoints/ ({fate})")
        if missed or repeated or tally.alike < tally.again:
            raise PenstockError("the resumed training is not the training that was killed: please report it")
