"""Instances: one call at a time, made anew in a forked child, and none of a class that leads back."""

from __future__ import annotations

import gc
import os
import threading

import fsspec
import pytest

import penstock as ps
import penstock.source as source_module
from penstock.errors import ConfigError, InvalidURL, MissingExtra, UnknownScheme
from penstock.stores.fsspec.driver import Instances, filesystem_class
from tests.children import forked


def test_unknown_protocol_raises_and_penstock_protocol_is_refused():
    assert filesystem_class("memory", "u").__name__ == "MemoryFileSystem"
    with pytest.raises(UnknownScheme, match="'nope'"):
        filesystem_class("nope", "u")
    with pytest.raises(InvalidURL, match="back to Penstock"):
        filesystem_class("penstock", "u")


def test_a_class_whose_library_is_missing_names_it():
    fsspec.register_implementation("lacking", "no_such_library.FS", clobber=True, errtxt="install no_such_library")
    with pytest.raises(MissingExtra, match="install no_such_library"):
        filesystem_class("lacking", "u")


def test_another_scheme_of_penstock_leads_back_too():
    fsspec.register_implementation("roundabout", "penstock.interop.fsspec.PenstockFileSystem", clobber=True)
    with pytest.raises(InvalidURL, match="back to Penstock"):
        filesystem_class("roundabout", "u")


def test_unsupported_storage_arguments_raise_config_error():
    with pytest.raises(ConfigError, match="storage_options"), Instances("github://", {"token": "x"}).borrow():
        pass


def test_two_calls_at_a_time_use_two_instances(tmp_path):
    instances = Instances(f"file://{tmp_path}/", {})
    with instances.borrow() as (one, root), instances.borrow() as (two, _):
        assert one is not two
        assert root == f"{tmp_path}/"
    with instances.borrow() as (again, _):
        assert again in (one, two)


@pytest.mark.parametrize(("error", "kept"), [(EOFError("closed"), False), (FileNotFoundError("x"), True)])
def test_instance_whose_connection_was_lost_is_not_used_again(tmp_path, error, kept):
    instances = Instances(f"file://{tmp_path}/", {})
    with pytest.raises(type(error)), instances.borrow() as (lost, _):
        raise error
    with instances.borrow() as (another, _):
        assert (another is lost) is kept


def test_an_instance_for_coroutines_serves_all():
    pytest.importorskip("aiohttp")
    instances = Instances("http://127.0.0.1:9/", {})
    with instances.borrow() as (one, _), instances.borrow() as (two, root):
        assert one is two
        assert root == "http://127.0.0.1:9/"


def test_a_forked_child_forgets_the_loop():
    asyn = pytest.importorskip("fsspec.asyn")
    asyn.get_loop()
    assert any(thread.name == "fsspecIO" for thread in threading.enumerate())
    child = os.fork()
    if not child:
        os._exit(0 if asyn.loop[0] is None and asyn.get_loop() is not None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_forked_child_cleanup_keeps_parent_connections_usable(served):
    """They share one epoll set: what the child takes out of it the parent waits for without end."""
    pytest.importorskip("aiohttp")
    (served.folder / "x").write_bytes(b"content")
    url = f"fsspec+{served.roots['index']}x"
    assert ps.open(url).read() == b"content"

    def work():
        source_module._engines.forget()
        gc.collect()

    for _ in range(3):
        with forked(work) as status:
            assert status() == 0
    found = []
    reader = threading.Thread(target=lambda: found.append(ps.open(url).read()), daemon=True)
    reader.start()
    reader.join(20)
    assert found == [b"content"]
