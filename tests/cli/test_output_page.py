"""A page is written whole, and a file that is there stays until then."""

from __future__ import annotations

import os
import threading

import pytest

from penstock.cli.output import check_page, save_page
from penstock.errors import Unusable


def test_a_check_leaves_everything_as_it_was(tmp_path):
    old, new = tmp_path / "old.html", tmp_path / "new.html"
    old.write_text("before")
    check_page(str(old))
    check_page(str(new))
    assert [each.name for each in tmp_path.iterdir()] == ["old.html"]
    assert old.read_text() == "before"


@pytest.mark.parametrize("name", ["", "none/page.html", "file/page.html"])
def test_a_place_that_takes_no_file_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("x")
    for refuse in (check_page, lambda path: save_page(path, "text")):
        with pytest.raises(Unusable, match="cannot write the page"):
            refuse(str(tmp_path / name))


def test_a_page_is_replaced_with_its_mode_and_behind_a_link(tmp_path):
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("before")
    page.chmod(0o640)
    link.symlink_to(page)
    save_page(str(link), "after é")
    assert page.read_text("utf-8") == "after é"
    assert page.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.html", "page.html"]


def test_failed_page_write_leaves_the_existing_page_unchanged(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        save_page(str(page), "\ud800")
    assert page.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_page(str(pipe))
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    save_page(str(pipe), "text")
    reader.join()
    assert found == ["text"]
