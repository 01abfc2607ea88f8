"""Places that nobody means to delete: refused by every name they have, and nothing else is."""

from __future__ import annotations

import os

import pytest

from penstock.errors import InvalidURL
from penstock.stores.urls import Location, check_deletable, parse


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Live in ``house/room``; the home is ``people/me``."""
    for name in ("house/room/box", "people/me/work", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "people/me"))
    monkeypatch.chdir(tmp_path / "house/room")
    (tmp_path / "elsewhere/link").symlink_to(tmp_path / "house")
    return tmp_path


ROOTS = "/ // /.. file:/// file:///. {}"
WORKING = ". .. ./ ../ ../.. box/.. {}/house {}/house/room {}/house/room/ {}//house/room/. {}/elsewhere/../house"
LINKED = "{}/elsewhere/link {}/elsewhere/link/room"
HOME = "{}/people {}/people/me"


@pytest.mark.parametrize("name", f"{ROOTS} {WORKING} {LINKED} {HOME}".split())
def test_roots_and_the_directories_a_process_lives_in_are_refused_by_any_name(home, name):
    with pytest.raises(InvalidURL, match="name the objects to delete"):
        check_deletable(parse(name.format(home)))


@pytest.mark.parametrize("scheme", ["s3", "memory"])
@pytest.mark.parametrize("key", ["", ".", "..", "/", "//", "./", "a/..", "a/../", "a/../../b/.."])
def test_a_buckets_root_is_refused_by_any_name(scheme, key):
    with pytest.raises(InvalidURL, match="a whole bucket"):
        check_deletable(parse(f"{scheme}://bucket/{key}"))


@pytest.mark.parametrize("name", ["box", "./box", "{}/elsewhere", "{}/people/me/work", "{}/nothing", "s3://bucket/a"])
def test_other_places_are_not_refused(home, name):
    check_deletable(parse(name.format(home)))


def test_a_working_directory_that_is_gone_protects_the_home_still(home):
    (home / "gone").mkdir()
    os.chdir(home / "gone")
    (home / "gone").rmdir()
    with pytest.raises(InvalidURL):
        check_deletable(Location("file", "", f"{home}/people".removeprefix("/")))
    check_deletable(Location("file", "", f"{home}/elsewhere".removeprefix("/")))
