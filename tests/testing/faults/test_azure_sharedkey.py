"""Who may ask the fault server in Azure's dialect, as Microsoft's own client sees it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import generate_blob_sas

from tests.servers import Account
from tests.stores.azure.test_driver import account_of


def test_another_key_and_another_account_are_refused(azure_server):
    account = account_of(azure_server)
    for other in (
        Account(account.endpoint, account.name, base64.b64encode(b"another key").decode()),
        Account(account.endpoint, "other", account.key),
    ):
        with pytest.raises(HttpResponseError, match="AuthenticationFailed"):
            other.client().get_container_client("box").get_blob_client("k").get_blob_properties()
    with pytest.raises(HttpResponseError, match="ContainerNotFound"):
        account.client().get_container_client("none").upload_blob("k", b"")


def test_a_copy_needs_a_signature_for_its_source(box, azure_server):
    box.get_blob_client("source").upload_blob(b"these bytes", overwrite=True)
    account, to = account_of(azure_server), box.get_blob_client("copy")
    url = f"{account.endpoint}/box/source"
    with pytest.raises(HttpResponseError, match="CannotVerifyCopySource"):
        to.start_copy_from_url(url, requires_sync=True)
    until = datetime.now(UTC) + timedelta(minutes=5)
    signed = generate_blob_sas(account.name, "box", "source", account_key=account.key, permission="r", expiry=until)
    assert "sig=" in signed
    wrong = signed.replace("sig=", "sig=x")
    with pytest.raises(HttpResponseError, match="CannotVerifyCopySource"):
        to.start_copy_from_url(f"{url}?{wrong}", requires_sync=True)


def test_a_damaged_body_is_refused(box):
    with pytest.raises(HttpResponseError, match="Md5Mismatch"):
        box.get_blob_client("k").stage_block("a", b"x", headers={"Content-MD5": base64.b64encode(b"0" * 16).decode()})
