"""A listing of many pages reads a folder twice at most, and shows nothing that is older than itself."""

from __future__ import annotations

import os

import pytest

from penstock.stores.local import driver as module
from penstock.stores.local.driver import DirectoryWalks, LocalDriver


@pytest.fixture
def folder(tmp_path):
    for number in range(4500):
        (tmp_path / f"{number:04}").touch()
    return tmp_path


@pytest.fixture
def scans(monkeypatch):
    """Return the folders that were read, as they are read."""
    seen, original = [], os.scandir

    def counted(path):
        seen.append(path)
        return original(path)

    monkeypatch.setattr("penstock.stores.local.driver.os.scandir", counted)
    return seen


def page(local, prefix="", token="", delimiter=""):
    return local.list(prefix, token=token, delimiter=delimiter).request.run()


def keys(local, delimiter=""):
    token, found = "", []
    while True:
        shown = page(local, token=token, delimiter=delimiter)
        found += [each.key for each in shown.entries] + list(shown.prefixes)
        token = shown.token
        if not token:
            return found


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_a_folder_is_read_twice_for_five_pages(folder, scans, delimiter):
    (folder / "sub").mkdir()
    (folder / "sub" / "file").touch()
    found = keys(LocalDriver(str(folder)), delimiter)
    assert found == [f"{number:04}" for number in range(4500)] + ["sub/" if delimiter else "sub/file"]
    assert len([each for each in scans if each == f"{folder}/"]) == 2


def test_files_that_come_and_go_meanwhile_change_nothing_else(folder):
    local = LocalDriver(str(folder))
    first = page(local)
    second = page(local, token=first.token)
    (folder / "2500").unlink()
    third = page(local, token=second.token)
    assert [each.key for each in third.entries] == [f"{number:04}" for number in range(2000, 3001) if number != 2500]


def test_new_listing_shows_new_files_despite_an_abandoned_older_listing(folder):
    local = LocalDriver(str(folder))
    second = page(local, token=page(local).token)
    for number in range(500):
        (folder / f"2000-{number:03}").touch()
    again = page(local, token=page(local).token)
    third = page(local, token=again.token)
    assert again.token == second.token
    assert "2000-000" in {each.key for each in third.entries}


def test_two_listings_at_once_do_not_disturb_one_another(folder):
    local = LocalDriver(str(folder))
    tokens, found = ["", ""], [[], []]
    for _ in range(5):
        for at in (0, 1):
            shown = page(local, token=tokens[at])
            found[at] += [each.key for each in shown.entries]
            tokens[at] = shown.token
    assert found[0] == found[1] == [f"{number:04}" for number in range(4500)]
    assert tokens == ["", ""]


def test_few_are_kept_and_none_for_long(monkeypatch):
    walks = DirectoryWalks()
    for number in range(6):
        walks.keep(f"p{number}", "", "token", iter(()))
    kept = [walks.left(f"p{number}", "", "token") is not None for number in range(6)]
    assert kept == [False] * 2 + [True] * 4
    walks.keep("p", "", "token", iter(()))
    now = module.monotonic()
    monkeypatch.setattr(module, "monotonic", lambda: now + 61)
    assert walks.left("p", "", "token") is None
