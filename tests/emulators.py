"""Every store that a test can have on this machine, as one table: what answers, what it checks, how to get a bucket.

A test takes all of them, or those with certain abilities, by ``@pytest.mark.parametrize("place", names(…),
indirect=True)``: it runs once on each, in an empty bucket of its own. ``settings()`` is for tests that plant faults,
wait for a store, or restart it: they run a fault server of their own in the dialect of a row.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.testing.drivers import KEYS
from penstock.testing.faults import FaultServer, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.engine.contracts.driver import ConditionForm
    from penstock.options import StoreOptions

__all__ = ["EMULATORS", "Emulator", "Place", "names", "settings"]


@dataclass(frozen=True)
class Place:
    """An empty bucket, container or folder of one test's own.

    Attributes:
        url: As a user writes it, with a trailing slash.
        store: The options that reach it.
        environment: The variables that reach it, for children that get no options.
        put: Stores an object, and is no work of Penstock's.
        objects: Returns what is visible, read without Penstock where the emulator has a client of its own.
        server: The fault server, where it is one.
    """

    url: str
    store: StoreOptions | None
    environment: dict[str, str]
    put: Callable[[str, bytes], object]
    objects: Callable[[], dict[str, bytes]]
    server: FaultServer | None = None


@dataclass(frozen=True)
class Emulator:
    """A row of the table.

    Attributes:
        name: As tests are named by it.
        about: What answers.
        open: Returns a fresh bucket; the argument is pytest's ``request``, whose fixtures are the servers.
        settings: Of the fault server, where it is one.
        apart: It is in a process of its own, so that forked and spawned workers see the same objects.
        checks: What it refuses where it is wrong: ``signature``, ``digests`` of what is written.
        heeds: The conditional writes that it heeds: ``create``, ``replace`` by a PUT; ``create-parts``,
            ``replace-parts`` by the end of an upload in parts.
        provider: The name of the provider whose contract is tested on it (``tests/stores/test_contract.py``); empty
            where the provider's promises are not to be kept there.
        promises: What differs of ``penstock.testing.drivers.Setting``.
        form: The form of conditions that the driver would learn (``Abilities.form``).
    """

    name: str
    about: str
    open: Callable[[Emulator, Any], Place]
    settings: Settings | None = None
    apart: bool = True
    checks: frozenset[str] = frozenset({"signature", "digests"})
    heeds: frozenset[str] = frozenset({"create", "replace", "create-parts", "replace-parts"})
    provider: str = ""
    promises: Mapping[str, object] = field(default_factory=dict, hash=False)
    form: ConditionForm = "usual"


def names(
    *, apart: bool = False, signed: bool = False, faulty: bool = False, without: tuple[str, ...] = ()
) -> list[Any]:
    """Return the emulators that are ``apart``, check signatures, or are fault servers, as a test's parameters."""
    import pytest

    found = [
        each
        for each in EMULATORS.values()
        if each.name not in without
        and (each.apart or not apart)
        and ("signature" in each.checks or not signed)
        and (each.settings is not None or not faulty)
    ]
    return [pytest.param(each.name, marks=[pytest.mark.ceph] if each.name == "ceph" else []) for each in found]


def settings(name: str, **changes: Any) -> Settings:
    """Return how the fault server of a row is set up, with ``changes``."""
    found = EMULATORS[name].settings
    assert found is not None, f"{name} is no fault server"
    return replace(found, **changes)


def _memory(_row: Emulator, _request: Any) -> Place:
    import penstock as ps

    url = f"memory://{uuid.uuid4().hex}/"

    def put(key: str, data: bytes) -> None:
        with ps.open(url + key, "wb") as file:
            file.write(data)

    return Place(url, None, {}, put, lambda: {each.key: ps.open(each.url).read() for each in ps.list(url)})


def _local(_row: Emulator, request: Any) -> Place:
    folder: Path = request.getfixturevalue("tmp_path") / "place"

    def put(key: str, data: bytes) -> None:
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)

    def objects() -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    folder.mkdir()
    return Place(f"file://{folder}/", None, {}, put, objects)


def _boto(row: Emulator, request: Any) -> Place:
    server = request.getfixturevalue(f"{row.name}_server")
    client, name = server.client(), f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)

    def objects() -> dict[str, bytes]:
        keys = [each["Key"] for each in client.list_objects_v2(Bucket=name).get("Contents", [])]
        return {key: client.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}

    def put(key: str, data: bytes) -> None:
        client.put_object(Bucket=name, Key=key, Body=data)

    return Place(f"s3://{name}/", server.store, server.environment, put, objects)


def _azurite(_row: Emulator, request: Any) -> Place:
    container = request.getfixturevalue("container")
    client = container.client

    def objects() -> dict[str, bytes]:
        return {each.name: client.download_blob(each.name).readall() for each in client.list_blobs()}

    return Place(container.url, container.store, container.account.environment, client.upload_blob, objects)


def _fault_server(row: Emulator, request: Any) -> Place:
    server: FaultServer = request.getfixturevalue("fault_servers")(row.settings)
    name = f"test-{uuid.uuid4().hex}"
    server.make(name)
    return Place(
        f"{server.scheme}://{name}/",
        server.store,
        server.environment,
        lambda key, data: server.put(name, key, data),
        lambda: server.objects(name),
        server,
    )


_WHOLE = frozenset({"create", "replace"})
_ALL = _WHOLE | {"create-parts", "replace-parts"}
_NONE: frozenset[str] = frozenset()
_GCS = "Google Cloud Storage"
_ALIBABA = Settings(dialect="oss", least_part_bytes=100 << 10)
_SLOW_PAGES = {"page_keys": 50}  # a thousand objects take Azurite eight seconds
# Azure makes '/' of '\' and leaves out dots at the ends of parts (``providers.azure`` refuses both).
_AZURE_KEYS = tuple(key for key in KEYS if "\\" not in key and not any(each.endswith(".") for each in key.split("/")))
_AZURE = {"keys": _AZURE_KEYS, "part_bytes": 100_000, **_SLOW_PAGES}
_GOOGLE = {"keys": tuple(key for key in KEYS if key not in (".", "..")), "heeds": ("put",)}

_ROWS = (
    Emulator("memory", "a dictionary in this process", _memory, apart=False, checks=_NONE, provider="memory"),
    Emulator(
        "local",
        "a folder",
        _local,
        checks=_NONE,
        provider="the file system",
        promises={
            "keys": tuple(key for key in KEYS if not {"", ".", ".."} & set(key.split("/"))),
            "keeps_metadata": False,
        },
    ),
    Emulator(
        "moto",
        "moto: it believes any signature and digest",
        _boto,
        checks=_NONE,
        heeds=_WHOLE,
        provider="S3",
        promises={"checks_digests": False, "holds_copies": False, "heeds": ("put",)},
    ),
    Emulator(
        "ceph",
        "Ceph's RADOS gateway",
        _boto,
        heeds=_WHOLE,
        provider="S3",
        promises={"holds_copies": False, "heeds": ("put",)},
        form="bare",
    ),
    Emulator(
        "azurite",
        "Microsoft's emulator",
        _azurite,
        provider="Azure",
        promises={**_AZURE, "copies_parts": False},  # 501
    ),
    *(
        Emulator(name, about, _fault_server, settings, heeds=heeds, provider=provider, promises=promises)
        for name, about, settings, heeds, provider, promises in (
            ("s3", "the fault server", Settings(), _ALL, "S3", {}),
            (
                "s3-careless",
                "the fault server, which ignores conditions",
                Settings(conditions="ignored"),
                _NONE,
                "",
                {},
            ),
            ("s3-unable", "the fault server, which refuses conditions", Settings(conditions="refused"), _NONE, "", {}),
            ("gcs-keys", "the fault server: Google, HMAC keys", Settings(dialect="gcs"), _WHOLE, _GCS, _GOOGLE),
            (
                "gcs-token",
                "the fault server: Google, a token",
                Settings(dialect="gcs", tokens=("good",)),
                _WHOLE,
                _GCS,
                _GOOGLE,
            ),
            (
                "oss",
                "the fault server: Alibaba",
                _ALIBABA,
                frozenset({"create", "create-parts"}),
                "Alibaba OSS",
                {"keys": tuple(key for key in KEYS if not key.startswith(("/", "\\"))), "part_bytes": 100 << 10},
            ),
            (
                "azure-key",
                "the fault server: Azure, an account's key",
                Settings(dialect="azure"),
                _ALL,
                "Azure",
                _AZURE,
            ),
            (
                "azure-token",
                "the fault server: Azure, a token",
                Settings(dialect="azure", tokens=("good",)),
                _ALL,
                "Azure",
                _AZURE,
            ),
            (
                "azure-hns",
                "the fault server: Azure, an account with a hierarchical namespace",
                Settings(dialect="azure-hns"),
                _ALL,
                "Azure",
                # Parts without a name are left out by the service.
                {**_AZURE, "keys": tuple(key for key in _AZURE_KEYS if all(key.split("/")))},
            ),
        )
    ),
)
EMULATORS = {each.name: each for each in _ROWS}
