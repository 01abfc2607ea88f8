"""What every test can count on: a clean environment, a known seed, real servers, and a bucket of its own."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import uuid
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from penstock.engine.read import hedging
from penstock.testing.faults import FaultServer
from tests.amounts import SOAK, examples
from tests.emulators import EMULATORS, Place
from tests.servers import Account, Bucket, Container, Server
from tests.servers import azurite as azurite_server
from tests.servers.ceph import ceph, missing
from tests.servers.moto import moto
from tests.servers.nginx import Nginx, nginx
from tests.servers.nginx import missing as no_nginx
from tests.watch import pytest_configure, pytest_runtest_protocol  # noqa: F401  hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from penstock.testing.faults import Settings

# The same run twice unless told otherwise; `make soak` draws another seed each time.
SEED = int(os.environ.get("PENSTOCK_SEED", "0"))
REQUIRE_SERVERS = os.environ.get("PENSTOCK_REQUIRE_SERVERS") == "1"

# Whatever could steer Penstock, botocore, curl or torch from outside.
_STEERING = re.compile(
    r"(AWS|AZURE|GOOGLE|GCS|GCP|OSS|S3|MSC|SLURM|TORCHELASTIC|PENSTOCK)_.*|.*_PROXY|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE"
    r"|(ALIBABA_CLOUD|R2|CLOUDFLARE|OCI|B2|WASABI|TIGRIS|MINIO|AIS)_.*"
    r"|SSL_CERT_(FILE|DIR)|(LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|XDG_CONFIG_HOME|NETRC",
    re.IGNORECASE,
)

# A reader of a CI log must be able to repeat what failed there, so nothing is drawn at random in it.
hypothesis.settings.register_profile("fixed", derandomize=True, print_blob=True, deadline=None, database=None)
hypothesis.settings.register_profile("soak", max_examples=examples(100), print_blob=True, deadline=None)
hypothesis.settings.load_profile("soak" if SOAK else "fixed")


def pytest_report_header() -> str:
    return f"penstock: PENSTOCK_SEED={SEED} hypothesis={hypothesis.settings.get_current_profile_name()}"


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist, or with `-p no:xdist`, there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.scheduling import ByFile

    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return one process more than there are cores, for ``-n logical``: a third of a process's time it only waits."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep the collector off what is collected: a million objects, which every collection of a run would visit again.

    They all live as long as the run. A forked child that collected them would copy the pages they lie in, too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what draws at random, for `make soak`; refuse names that nobody could name again, nor could pytest-xdist."""
    if named := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"names with an address in them, which `ids=` mends: {named}")
    for item in items:
        if item.get_closest_marker("hypothesis") or "seed" in getattr(item, "fixturenames", ()):
            item.add_marker("random")


@pytest.fixture(scope="session", autouse=True)
def _clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the machine: its credentials, proxies, certificates and launchers."""
    home: Path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(_STEERING.fullmatch, list(os.environ)):
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_RUNTIME_DIR", str(home))  # other test processes are another node
        patch.setenv("AWS_CONFIG_FILE", str(home / "no-config"))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "no-credentials"))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # Child interpreters see the checkout too, installed or not.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        # There is one fork server, which the first test that asks for it starts: each worker would import torch else.
        multiprocessing.set_forkserver_preload(["tests.data.loading.histories", "tests.data.datasets.ranks"])
        yield


@pytest.fixture(scope="session")
def seed() -> int:
    """Return the run's seed, for tests that make a generator of their own."""
    return SEED


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Let what draws from the global generator draw the same in every order of tests."""
    random.seed(SEED)


@pytest.fixture(scope="session", autouse=True)
def _unhurried() -> None:
    """Let no store be known well enough for second requests: on a busy machine tests that count requests would vary."""
    hedging._LEAST = sys.maxsize


@pytest.fixture(autouse=True)
def _listeners() -> Iterator[None]:
    """Fail the test that leaves an event listener behind, and not those that come after it."""
    before = _listening()
    yield
    left = [each for each in _listening() if each not in before]
    if left:
        sys.modules["penstock.events.listeners"]._listeners = before
    assert not left, f"{left} still listens: call what subscribe() returned"


def _listening() -> tuple[Any, ...]:
    events = sys.modules.get("penstock.events.listeners")
    return events._listeners if events else ()


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Let go of the threads, connections and memory for all that a module met: every fork after it would pay for them.

    And of a test that hangs, the stacks would be among those of a thousand threads that wait for nothing.
    Buckets in memory are emptied, and what texts of errors hide or add is forgotten, since modules come in any order.
    """
    yield
    if errors := sys.modules.get("penstock.errors"):
        errors._aliases.clear()
        errors._secrets.clear()
    if memory := sys.modules.get("penstock.stores.memory"):
        for bucket in memory._buckets.values():
            bucket.clear()
    if source := sys.modules.get("penstock.source"):
        source._engines.forget()
    gc.collect()
    with suppress(AttributeError):  # it is glibc's
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def moto_server() -> Iterator[Server]:
    """Moto: everywhere, quick, gullible."""
    with moto() as server:
        yield server


@pytest.fixture(scope="session")
def ceph_server() -> Iterator[Server]:
    """Ceph: strict. Skipped where it is not installed, unless PENSTOCK_REQUIRE_SERVERS=1."""
    if absent := missing():
        message = f"Ceph is not installed ({', '.join(absent)}): apt-get install radosgw ceph-mon ceph-osd ceph-common"
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)
    with ceph() as server:
        yield server


@pytest.fixture(scope="session")
def nginx_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """A web server. Skipped where it is not installed, unless PENSTOCK_REQUIRE_SERVERS=1."""
    if absent := no_nginx():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(absent)
    with nginx(tmp_path_factory.mktemp("nginx")) as server:
        yield server


@pytest.fixture
def served(nginx_server: Nginx) -> Nginx:
    """Return the web server with an empty folder."""
    for each in nginx_server.folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    return nginx_server


@pytest.fixture(scope="session", params=["moto", pytest.param("ceph", marks=pytest.mark.ceph)])
def s3_server(request: pytest.FixtureRequest) -> Server:
    """Each of the two in turn."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture(scope="session")
def azurite() -> Iterator[Account]:
    """Azurite: it checks signatures. Skipped where it is not installed, unless PENSTOCK_REQUIRE_SERVERS=1."""
    if absent := azurite_server.missing():
        message = f"Azurite is not installed ({', '.join(absent)}): see CONTRIBUTING.md"
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)
    with azurite_server.azurite() as account:
        yield account


@pytest.fixture
def container(azurite: Account) -> Container:
    """Make a fresh container, for this test alone."""
    client = azurite.client().create_container(f"test-{uuid.uuid4().hex}")
    return Container(azurite, client.container_name, client)


@pytest.fixture
def bucket(s3_server: Server) -> Bucket:
    """Make a fresh bucket on each server, for this test alone."""
    client = s3_server.client()
    name = f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    return Bucket(s3_server, name, client)


@pytest.fixture
def opened(bucket: Bucket) -> Iterator[Bucket]:
    """Have fsspec open the bucket with Penstock, for this test alone."""
    from fsspec.registry import _registry

    from penstock.interop.fsspec import register
    from penstock.interop.fsspec.schemes import kind_of

    register(store=bucket.store)
    yield bucket
    kind_of("s3").default = None
    _registry.pop("s3")


@pytest.fixture(scope="session")
def fault_servers() -> Iterator[Callable[[Settings], FaultServer]]:
    """Return a function that starts a fault server the first time that its settings are asked for."""
    with ExitStack() as running:
        yield cache(lambda settings: running.enter_context(FaultServer.start(settings)))


@pytest.fixture(scope="module")
def s3_faults() -> Iterator[FaultServer]:
    """Run an S3 server with faults in this process, for the tests of a module."""
    with FaultServer.within() as server:
        yield server


@pytest.fixture(scope="module")
def s3_process() -> Iterator[FaultServer]:
    """Run an S3 server with faults in a process of its own, for the tests of a module."""
    with FaultServer.start() as server:
        yield server


@pytest.fixture
def names(
    s3_faults: FaultServer, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """Return two names of one bucket: the environment's, and a profile's that reaches its server as localhost."""
    s3_faults.make(bucket := f"b{abs(hash(request.node.name))}")
    monkeypatch.chdir(tmp_path)
    for name, value in s3_faults.environment.items():
        monkeypatch.setenv(name, value)
    endpoint = s3_faults.endpoint.replace("127.0.0.1", "localhost")
    (tmp_path / "penstock.toml").write_text(
        f"[profiles.other]\nurl = 's3://{bucket}/'\noptions.endpoint = '{endpoint}'\n"
    )
    return f"s3://{bucket}/", "penstock://other/"


@pytest.fixture(scope="module")
def filled() -> Iterator[Server]:
    """Yield a server with labelled images under s3://bucket/train/ and photographs under s3://bucket/photos/."""
    from tests.images import filled_server

    with filled_server() as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """Make a fresh bucket on the emulator that the test names: ``parametrize("place", names(), indirect=True)``."""
    row = EMULATORS[request.param]
    return row.open(row, request)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 2 MiB: only a real one is ever really full."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a disk takes root (CAP_SYS_ADMIN), which this process has not")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)
