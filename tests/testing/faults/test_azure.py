"""Azure's dialect as Microsoft's own client sees it: objects, blocks, conditions, copies, and what is refused."""

from __future__ import annotations

import base64

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, ContentSettings

from penstock.testing.faults import FAULTS, Match


def _block(name):
    return base64.b64encode(name.encode()).decode()


def test_an_object_has_its_bytes_type_metadata_and_digest(box):
    blob = box.get_blob_client("a b/ü")
    data = b"body" * 1000
    blob.upload_blob(data, metadata={"a_b": "1", "a1": "2"}, content_settings=ContentSettings("text/plain"))
    found = blob.get_blob_properties()
    assert (found.size, found.metadata, found.content_settings.content_type) == (
        4000,
        {"a_b": "1", "a1": "2"},
        "text/plain",
    )
    assert blob.download_blob().readall() == data
    assert blob.download_blob(offset=2, length=3).readall() == b"dyb"
    (listed,) = box.list_blobs(name_starts_with="a b/", include=["metadata"])
    assert (listed.name, listed.size, listed.metadata) == ("a b/ü", 4000, {"a_b": "1", "a1": "2"})
    blob.delete_blob()
    with pytest.raises(ResourceNotFoundError, match="BlobNotFound"):
        blob.delete_blob()


def test_create_and_replace_conditions_are_enforced(box):
    blob = box.get_blob_client("conditional")
    blob.upload_blob(b"first")
    with pytest.raises(ResourceExistsError, match="BlobAlreadyExists"):
        blob.upload_blob(b"second")
    etag = blob.get_blob_properties().etag
    blob.upload_blob(b"third", overwrite=True, etag=etag, match_condition=MatchConditions.IfNotModified)
    with pytest.raises(ResourceModifiedError, match="ConditionNotMet"):
        blob.upload_blob(b"fourth", overwrite=True, etag=etag, match_condition=MatchConditions.IfNotModified)
    assert blob.download_blob().readall() == b"third"


def test_blocks_become_an_object_when_they_are_committed(box, azure_server):
    blob = box.get_blob_client("blocks")
    for name in ("b", "a", "c"):
        blob.stage_block(_block(name), name.encode() * 3)
    assert azure_server.uploads("box") == ["blocks"]
    assert [each.name for each in box.list_blobs(include=["uncommittedblobs"])][-1:] != []
    with pytest.raises(HttpResponseError, match="InvalidBlobOrBlock"):
        blob.stage_block(_block("longer than others"), b"x")
    blob.commit_block_list([BlobBlock(_block("a")), BlobBlock(_block("b"))])
    assert (blob.download_blob().readall(), azure_server.uploads("box")) == (b"aaabbb", [])
    with pytest.raises(HttpResponseError, match="InvalidBlockList"):
        blob.commit_block_list([BlobBlock(_block("c"))])
    blob.commit_block_list([BlobBlock(_block("b")), BlobBlock(_block("a"))])
    assert blob.download_blob().readall() == b"bbbaaa", "committed blocks can be committed again"
    assert blob.get_blob_properties().content_settings.content_md5 is None


def test_a_listing_comes_in_pages(box, azure_server):
    for number in range(7):
        box.get_blob_client(f"pages/{number // 3}/{number}").upload_blob(b"", overwrite=True)
    names = [each.name for each in box.list_blobs(name_starts_with="pages/", results_per_page=3)]
    assert names == [f"pages/{number // 3}/{number}" for number in range(7)]
    assert len(azure_server.seen("list")) >= 3
    assert [each.name for each in box.walk_blobs("pages/")] == ["pages/0/", "pages/1/", "pages/2/"]


def test_faults_have_azures_codes(azure_server, box):
    for name, code in (
        ("503", "ServerBusy"),
        ("expired", "InvalidAuthenticationInfo"),
        ("denied", "AuthorizationPerm"),
    ):
        azure_server.fail(FAULTS[name], when=Match(verb="head"))
        with pytest.raises(HttpResponseError) as caught:
            box.get_blob_client("k").get_blob_properties(retry_total=0)
        assert caught.value.error_code.startswith(code), "in a header, for HEAD has no body"
