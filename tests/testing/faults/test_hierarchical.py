"""An account with a hierarchical namespace as Microsoft's client sees it: folders, their order, their refusals."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError

from penstock.testing.faults import FaultServer, Settings
from tests.stores.azure.test_driver import account_of


@pytest.fixture(scope="module")
def server():
    with FaultServer.within(Settings(dialect="azure-hns")) as server:
        server.make("box")
        yield server


@pytest.fixture
def box(server):
    """A container through Microsoft's client, with objects."""
    container = account_of(server).client().get_container_client("box")
    # As Azure/azure-sdk-for-go#24210 shows it.
    for key in ("A", "A-B-C", "A-B/dat2", "A-C", "AB.txt", "AB/AB", "AB/dat4", "ABC"):
        container.upload_blob(key, b"x", overwrite=True)
    return container


def test_folders_are_listed_part_by_part(box):
    names = ["A", "A-B", "A-B/dat2", "A-B-C", "A-C", "AB", "AB/AB", "AB/dat4", "AB.txt", "ABC"]
    assert [each.name for each in box.list_blobs()] == names
    pages = [[each.name for each in page] for page in box.list_blobs(results_per_page=3).by_page()]
    assert pages[0] == names[:3]
    assert sum(pages, []) == names
    assert sorted(each.name for each in box.walk_blobs(delimiter="/")) == [
        *("A", "A-B-C", "A-B/", "A-C", "AB.txt", "AB/", "ABC")
    ]
    assert [each.name for each in box.walk_blobs("AB/", delimiter="/")] == ["AB/AB", "AB/dat4"]


def test_folder_blob_is_marked_and_cannot_be_deleted_until_empty(box):
    folder = box.get_blob_client("AB")
    assert folder.get_blob_properties().metadata == {"hdi_isfolder": "true"}
    with pytest.raises(HttpResponseError, match="DirectoryIsNotEmpty"):
        folder.delete_blob()
    box.delete_blob("AB/AB")
    box.delete_blob("AB/dat4")
    assert "AB" in [each.name for each in box.list_blobs()]
    folder.delete_blob()
    assert "AB" not in [each.name for each in box.list_blobs()]


def test_names_are_paths(box):
    for key in ("A/below", "A-B"):
        with pytest.raises(ResourceExistsError, match="PathConflict"):
            box.upload_blob(key, b"x", overwrite=True)
    with pytest.raises(HttpResponseError, match="PathConflict"):
        list(box.list_blobs("A/x"))
    box.upload_blob("double//slash", b"y")
    assert [each.name for each in box.list_blobs("double")] == ["double", "double/slash"]
