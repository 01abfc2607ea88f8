"""The whole library on Azurite: every way to be authorised, workers of both kinds, checkpoints, files, commands."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
import torch
import torch.distributed.checkpoint
from azure.storage.blob import generate_container_sas

import penstock as ps
from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.errors import Conflict, Denied, Forbidden, NotFound
from penstock.source import open_source

SMALL = ps.WriteOptions(part_bytes=256 << 10, buffer_bytes=1 << 20)
SAMPLES = 40


def size_of(sample):
    return len(sample.data)


@pytest.fixture
def filled(container):
    for number in range(SAMPLES):
        container.client.upload_blob(f"train/{number:03}.bin", bytes([number]) * (number + 1))
    return container


def _sas(container, permission):
    account = container.account
    until = datetime.now(UTC) + timedelta(hours=1)
    return generate_container_sas(account.name, container.name, account.key, permission=permission, expiry=until)


@pytest.fixture
def signed(container):
    return ps.AzureOptions(endpoint=container.account.endpoint, sas_token=_sas(container, "rwdlc"))


class TestWays:
    """Every way to be authorised reads, writes, lists and copies."""

    def _use(self, url, store=None):
        with ps.open(f"{url}a/b c", "wb", store=store) as file:
            file.write(b"some bytes")
        ps.copy(f"{url}a/b c", f"{url}a/copy", store=store)
        assert ps.open(f"{url}a/copy", store=store).read() == b"some bytes"
        assert [each.key for each in ps.list(f"{url}a/", store=store)] == ["a/b c", "a/copy"]
        ps.delete(f"{url}a/copy", store=store)
        with pytest.raises(NotFound):
            ps.stat(f"{url}a/copy", store=store)

    def test_an_account_key(self, container):
        self._use(container.url, container.store)

    def test_a_shared_access_signature_which_no_text_shows(self, container, signed):
        self._use(container.url, signed)
        readable = ps.AzureOptions(endpoint=container.account.endpoint, sas_token=_sas(container, "r"))
        with pytest.raises(Forbidden) as caught:
            ps.open(f"{container.url}new", "wb", store=readable).close()
        assert "sig" not in str(caught.value)
        source, _ = open_source(container.url, signed)
        assert "sig" not in f"{source.url('k')}{source._fetcher().driver.url('k')}{signed!r}"

    def test_a_connection_string_of_the_environment(self, container, monkeypatch):
        for name, value in container.account.environment.items():
            monkeypatch.setenv(name, value)
        self._use(container.url)

    def test_variables_of_other_tools(self, container, monkeypatch):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", container.account.name)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", container.account.key)
        self._use(container.url, ps.AzureOptions(endpoint=container.account.endpoint))

    def test_the_account_in_the_url(self, container):
        host = f"{container.account.name}.dfs.core.windows.net"
        self._use(f"abfss://{container.name}@{host}/", container.store)

    def test_a_public_container_without_any(self, azurite, filled):
        filled.client.set_container_access_policy({}, public_access="container")
        public = ps.AzureOptions(account=azurite.name, endpoint=azurite.endpoint, anonymous=True)
        assert len(list(ps.list(filled.url, store=public))) == SAMPLES
        assert ps.open(f"{filled.url}train/003.bin", store=public).read() == b"\3" * 4

    def test_a_wrong_key_says_what_to_check(self, container):
        wrong = ps.AzureOptions(account="devstoreaccount1", endpoint=container.account.endpoint, account_key="AAAA")
        with pytest.raises(Denied, match="the credentials are wrong"):  # Azure itself says AuthenticationFailed
            ps.stat(f"{container.url}k", store=wrong)

    def test_a_container_that_is_not_there_is_named(self, azurite):
        with pytest.raises(NotFound, match=r"ContainerNotFound.*check the container's name"):
            list(ps.list("az://nowhere/", store=azurite.store))


@pytest.mark.parametrize(("method", "workers"), [("fork", 2), ("spawn", 1)])
def test_workers_read_what_the_parent_listed(filled, method, workers):
    dataset = ps.MapDataset.from_prefix(f"{filled.url}train/", store=filled.store, transform=size_of)
    assert dataset[2] == 3  # the parent has connections, which no worker inherits
    loader = ps.DataLoader(dataset, batch_size=8, num_workers=workers, multiprocessing_context=method)
    assert sorted(size for batch in loader for size in batch.tolist()) == list(range(1, SAMPLES + 1))


def test_a_large_object_goes_in_blocks_and_comes_back(container, seed):
    data = random.Random(seed).randbytes(3 << 20)
    store = ps.AzureOptions(connection_string=container.account.connection_string, write=SMALL)
    with ps.open(f"{container.url}large", "wb", store=store) as file:
        file.write(data)
    blob = container.client.get_blob_client("large")
    assert blob.download_blob().readall() == data
    committed, uncommitted = blob.get_block_list("all")
    assert (len(committed), uncommitted) == (12, [])
    with pytest.raises(FileExistsError), ps.open(f"{container.url}large", "xb", store=store) as file:
        file.write(data)
    source, _ = open_source(container.url, store)
    fetcher = source._fetcher()
    fetcher.limits = type(fetcher.limits)(copy_bytes=1 << 20)  # Azurite copies no parts: read and written
    source.copy("large", "copy")
    assert container.client.get_blob_client("copy").download_blob().readall() == data


def test_of_two_writers_in_blocks_the_first_to_finish_wins(container):
    store = ps.AzureOptions(connection_string=container.account.connection_string, write=SMALL)
    first, second = (ps.open(f"{container.url}key", "wb", store=store) for _ in range(2))
    for file, letter in ((first, b"1"), (second, b"2")):
        file.write(letter * (600 << 10))
    first.close()
    with pytest.raises(Conflict, match="blocks of this upload are gone"):
        second.close()
    assert ps.open(f"{container.url}key", store=store).read() == b"1" * (600 << 10)


def test_checkpoints_are_saved_restored_and_cleaned_up(container):
    manager = ps.CheckpointManager(f"{container.url}run/", keep_last=2, store=container.store)
    state = {"weight": torch.arange(100_000, dtype=torch.float32)}
    for step in (1, 2, 3):
        state["weight"] += 1
        manager.save(step, state)
    assert manager.steps() == [2, 3]
    restored = manager.restore()
    assert torch.equal(restored["weight"], state["weight"])


def test_safetensors_come_back(container):
    tensors = {"a": torch.arange(10), "b": torch.ones(3, 4)}
    ps.save_safetensors(tensors, f"{container.url}model.safetensors", store=container.store)
    found = ps.load_safetensors(f"{container.url}model.safetensors", store=container.store)
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_commands_take_the_environment(filled):
    def run(*arguments):
        command = [sys.executable, "-m", "penstock", *arguments]
        environment = os.environ | filled.account.environment
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    listed = run("ls", f"{filled.url}train/")
    assert (listed.returncode, len(listed.stdout.splitlines())) == (0, SAMPLES)
    examined = run("doctor", filled.url)
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert filled.account.key not in examined.stdout + examined.stderr


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_distributed_checkpoints_are_saved_and_loaded(container):
    url, saved = f"{container.url}sharded", {"weight": torch.arange(50_000, dtype=torch.float32)}
    torch.distributed.checkpoint.save(saved, storage_writer=StorageWriter(url, store=container.store), no_dist=True)
    loaded = {"weight": torch.zeros(50_000)}
    torch.distributed.checkpoint.load(loaded, storage_reader=StorageReader(url, store=container.store), no_dist=True)
    assert torch.equal(loaded["weight"], saved["weight"])
