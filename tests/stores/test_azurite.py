"""What is Azure's own, on Azurite: every way to be authorised, and large objects in blocks."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import generate_container_sas

import penstock as ps
from penstock.errors import Conflict, Denied, Forbidden, NotFound
from penstock.source import open_source

SMALL = ps.WriteOptions(part_bytes=256 << 10, buffer_bytes=1 << 20)
SAMPLES = 40


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

    def test_wrong_account_key_error_advises_checking_the_key_variable(self, container):
        wrong = ps.AzureOptions(account="devstoreaccount1", endpoint=container.account.endpoint, account_key="AAAA")
        # Azure itself says AuthenticationFailed.
        with pytest.raises(Denied, match=r"AuthorizationFailure.*AZURE_STORAGE_ACCOUNT_KEY"):
            ps.stat(f"{container.url}k", store=wrong)

    def test_a_container_that_is_not_there_is_named(self, azurite):
        with pytest.raises(NotFound, match=r"ContainerNotFound.*check the container's name"):
            list(ps.list("az://nowhere/", store=azurite.store))


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
