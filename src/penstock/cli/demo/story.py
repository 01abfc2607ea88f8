"""The demo: fill a bucket, train, kill the training in the middle of an epoch, resume, test, report."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import penstock as ps
from penstock.cli.demo import EPOCHS
from penstock.cli.demo.train import SEED
from penstock.cli.screen import Screen
from penstock.errors import ConfigError, MissingExtra, NotFound, PenstockError
from penstock.source import open_source
from penstock.testing.faults import FaultServer, Settings
from penstock.testing.faults.dialect import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

_LEAST_ACCURACY = 0.95
_NEEDED = {"torch": "torch", "sklearn": "scikit-learn", "PIL": "pillow", "rich": "rich"}
# Number of images: 8 x 8 pixels, 17 levels of grey, about equally many of each digit.
COUNT = 1797
# Every fifth image is for testing: 360 images, the same ones in every run.
_TEST_EVERY = 5
# Concurrent uploads; more would only queue at a server written in Python.
_UPLOADS = 16
_BUCKET = "penstock-demo"
_STEERING = ("AWS_", "GOOGLE_", "GCS_", "STORAGE_EMULATOR_HOST", "AZURE_", "OSS_", "ALIBABA_CLOUD_", "PENSTOCK_CONFIG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Settings of the demo, as the options of its command; ``provider`` is a dialect of ``penstock.testing.faults``."""

    bucket: str | None = None
    provider: str | None = None
    endpoint: str | None = None
    epochs: int = EPOCHS
    keep: bool = False

    def __post_init__(self) -> None:
        if self.bucket is None and (self.endpoint is not None or self.keep):
            raise ConfigError("--endpoint and --keep need your own bucket: pass it as --bucket")
        if self.bucket is not None and self.provider is not None:
            raise ConfigError("--provider is for the demo's own server; pass your own bucket as a URL: gs://bucket")
        if self.provider is not None and self.provider not in DIALECTS:
            raise ConfigError(f"--provider must be one of {', '.join(DIALECTS)}, got {self.provider!r}")

    def run(self) -> None:
        """Run the demo and print its progress; takes about half a minute.

        Raises:
            MissingExtra: A required package is not installed.
            PenstockError: The demo failed, or the test accuracy is below 95 %.
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
        return (
            borrow_prefix(self.bucket, self.endpoint, keep=self.keep)
            if self.bucket
            else embedded(self.provider or "s3")
        )

    def _server(self) -> str:
        if self.bucket is None:
            return "Penstock's own test server, in memory, in a process of its own"
        return self.endpoint or "what the environment says, or AWS"

    def _fate(self) -> str:
        if self.bucket is None:
            return "it goes with the demo's server"
        return "it stays" if self.keep else "it is deleted now; --keep leaves it"


class _Story:
    """Single run of the demo at one URL."""

    def __init__(self, url: str, server: str, epochs: int) -> None:
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
        began = perf_counter()
        with self._screen.bar("uploading", COUNT) as show:
            size_bytes = upload(self._url, show)
        words = f"{COUNT:,} images as PNG, {size_bytes:,} bytes, in {perf_counter() - began:.1f} s"
        self._screen.say("uploaded", words)

    def train(self) -> None:
        """Train in one process, kill it in the middle of an epoch, and finish the training in a second process."""
        tally = self.tally
        with self._screen.bar("training", self._epochs) as show:
            self._live(show, lambda: tally.step >= (self._epochs // 2) * tally.batches + tally.batches // 2)
            self._killed = tally.place(tally.step)
            self._screen.say("killed", f"{self._killed}: SIGKILL")
            self._live(show, lambda: False)

    def _live(self, show: Callable[[float], None], doomed: Callable[[], bool]) -> None:
        """Follow one training process to its end; it is killed once ``doomed()`` is true."""
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
        """Print the report; raise ``PenstockError`` if the resumed training differs."""
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


def upload(url: str, show: Callable[[float], None]) -> int:
    """Store every image below ``url``, one PUT each, 16 in flight; return the number of bytes.

    ``show`` is called on this thread after each image, with the number of stored images.
    """
    source, prefix = open_source(url)

    def store(image: tuple[str, bytes]) -> int:
        name, png = image
        source.put(prefix + name, png)
        return len(png)

    size_bytes = 0
    with ThreadPoolExecutor(_UPLOADS) as threads:
        for done, size in enumerate(threads.map(store, _images()), start=1):
            size_bytes += size
            show(done)
    return size_bytes


def _images() -> Iterator[tuple[str, bytes]]:
    """Yield ``train/7/0012.png`` or ``test/7/0010.png`` (part, label, index) and its bytes."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        part = "test" if index % _TEST_EVERY == 0 else "train"
        png = io.BytesIO()
        Image.fromarray((pixels * (255 / 16)).astype("uint8")).save(png, "PNG")
        yield f"{part}/{label}/{index:04}.png", png.getvalue()


def live(url: str, epochs: int, doomed: Callable[[], bool]) -> Generator[dict[str, Any]]:
    """Train in a new interpreter and yield its reports as they arrive; kill it once ``doomed()``, or on ``close``.

    The signal is SIGKILL. Reports still in the pipe follow after it, because a checkpoint may include their steps.
    The process leads a process group, so that a Ctrl-C at the terminal reaches it only through this process.

    Raises:
        PenstockError: The training failed; its messages are on standard error.
    """
    command = [sys.executable, "-P", "-m", "penstock.cli.demo.train", url, str(epochs)]
    killed = False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:  # noqa: S603  our own command
        try:
            for line in process.stdout or ():
                yield json.loads(line)
                if not killed and doomed():
                    os.killpg(process.pid, signal.SIGKILL)
                    killed = True
            if (status := process.wait()) and not killed:
                raise PenstockError(f"the training process ended with status {status}: see its output above")
        finally:
            # Until the process is waited for, no other process can have its id.
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def embedded(provider: str = "s3") -> Iterator[str]:
    """Serve a bucket from memory in a separate process until the block ends; yield its URL, ending in ``/``.

    ``provider`` is a dialect of ``FaultServer``. Inside the block, the environment of this process and its children
    points at the server: they need no options.
    """
    with FaultServer.start(Settings(dialect=provider)) as server:
        server.make(_BUCKET)
        with _environment(_own(server.environment)):
            yield f"{server.scheme}://{_BUCKET}/"


@contextmanager
def borrow_prefix(bucket: str, endpoint: str | None, *, keep: bool) -> Iterator[str]:
    """Work below a new prefix in an existing bucket; yield its URL, ending in ``/``.

    Credentials, region and all other settings come from the environment. The written objects are deleted at the end,
    also after an error, unless ``keep``. ``bucket`` may be a URL; a name alone is an S3 bucket.

    Raises:
        ConfigError: ``endpoint`` is given for a store that is not S3.
        NotFound: The bucket does not exist; the demo never creates one.
    """
    root = f"{bucket if '://' in bucket else f's3://{bucket}'}".rstrip("/") + "/"
    if endpoint and not root.startswith("s3://"):
        raise ConfigError("--endpoint is for s3://; other stores have variables of their own")
    url = f"{root}penstock-demo-{uuid4().hex[:12]}/"
    with _environment({**os.environ, **({"AWS_ENDPOINT_URL_S3": endpoint} if endpoint else {})}):
        try:
            next(ps.list(url), None)
        except NotFound as error:
            raise NotFound("no such bucket: create it first", url=root) from error
        try:
            yield url
        finally:
            if not keep:
                source, prefix = open_source(url)
                source.delete([entry.key for page in source.pages(prefix) for entry in page.entries])


def _own(variables: dict[str, str]) -> dict[str, str]:
    """Return an environment that knows only the demo's server, regardless of the user's settings."""
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}
    nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "no_proxy": "127.0.0.1"}
    return elsewhere | nothing | variables


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate of reading: objects, elapsed seconds, and the seconds in which the training waited for data."""

    objects: int = 0
    elapsed_s: float = 0.0
    waited_s: float = 0.0

    def __add__(self, other: Pace) -> Pace:
        return Pace(self.objects + other.objects, self.elapsed_s + other.elapsed_s, self.waited_s + other.waited_s)

    def __str__(self) -> str:
        """Return one line of text; at least one object must have been read."""
        waited = self.waited_s / self.elapsed_s
        return f"{self.objects / self.elapsed_s:,.0f} objects/s, {waited:.0%} of the time waiting for data"


class _Batch(NamedTuple):
    epoch: int
    numbers: tuple[int, ...]
    loss: float


@dataclass(slots=True)
class Tally:
    """Totals of all reports of ``train``; a step counts only if a checkpoint or the running process has it.

    ``began`` is the step of the checkpoint that the current process resumed; ``batches`` and ``images`` are those of an
    epoch; ``again`` counts the steps that were done a second time, ``alike`` those with the same images and loss.
    """

    step: int = 0
    began: int = 0
    batches: int = 1
    images: int = 0
    pace: Pace = field(default_factory=Pace)
    again: int = 0
    alike: int = 0
    accuracy: float = 0.0
    _steps: dict[int, _Batch] = field(default_factory=dict)
    _lost: dict[int, _Batch] = field(default_factory=dict)

    def hear(self, event: dict[str, Any]) -> None:
        match event:
            case {"ready": step, "batches": batches, "images": images}:
                self.step = self.began = step
                self.batches, self.images = batches, images
                self._lost = {each: batch for each, batch in self._steps.items() if each > step}
                self._steps = {each: batch for each, batch in self._steps.items() if each <= step}
            case {"step": step, "epoch": epoch, "numbers": numbers, "loss": loss}:
                self.step = step
                self._steps[step] = _Batch(epoch, tuple(numbers), loss)
                if step in self._lost:
                    self.again += 1
                    # The comparison is exact: JSON keeps every bit of a float.
                    self.alike += self._lost[step] == self._steps[step]
            case {"pace": pace}:
                self.pace += Pace(*pace)
            case {"accuracy": accuracy}:
                self.accuracy = accuracy

    def place(self, step: int) -> str:
        epoch, batch = divmod(step, self.batches)
        return f"in epoch {epoch + 1}, after {batch} of {self.batches} batches"

    def loss(self, epoch: int) -> float:
        """Return the mean loss of an epoch, counted from 0."""
        return fmean(batch.loss for batch in self._steps.values() if batch.epoch == epoch)

    def delivered(self, epochs: int) -> tuple[int, int]:
        """Return the number of missed and of repeated images, summed over the epochs."""
        times = Counter((batch.epoch, number) for batch in self._steps.values() for number in batch.numbers)
        return epochs * self.images - len(times), sum(times.values()) - len(times)
