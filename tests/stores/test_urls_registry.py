"""Schemes come from one table, then from installed distributions, whose providers work everywhere or say why not."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL, UnknownScheme
from penstock.interop.fsspec import register
from penstock.interop.fsspec.schemes import kind_of
from penstock.stores import urls
from penstock.stores.urls import parse
from tests.edges.launch import program

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def install(folder: Path, distribution: str, entries: dict[str, str]) -> None:
    """Install a distribution that has nothing but entry points, as pip leaves one behind."""
    place = folder / f"{distribution}-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (place / "entry_points.txt").write_text("\n".join([f"[{urls.GROUP}]", *lines, ""]))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs distributions beside the file of a third party, for this process and children."""
    (tmp_path / "penstock_shelf.py").write_text((HERE / "shelf.py").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT / "src")]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHELVES", str(tmp_path / "shelves"))
    monkeypatch.setattr(urls, "_loaded", {})
    yield lambda distribution, **entries: install(tmp_path, distribution, entries)
    sys.modules.pop("penstock_shelf", None)


EVERYWHERE = """
import sys
import fsspec
import penstock as ps
import torch
from penstock.cli import main
from penstock.interop.fsspec import register

def command(*words):
    sys.argv = ["penstock", *words]
    try:
        main()
    except SystemExit as end:
        return end.code

def key(sample):
    return sample.key, bytes(sample.data)

if __name__ == "__main__":
    for number in range(8):
        with ps.open(f"shelf://one/train/{number}", "wb") as file:
            file.write(b"%d" % number)
    names = [f"train/{number}" for number in range(8)]
    assert [each.key for each in ps.list("shelf://one/train/")] == names
    assert ps.stat("shelf://one/train/3").url == "shelf://one/train/3"
    dataset = ps.MapDataset.from_prefix("shelf://one/train/", transform=key)
    for how, workers in (("fork", 2), ("spawn", 1)):
        loader = ps.DataLoader(dataset, batch_size=2, num_workers=workers, multiprocessing_context=how, collate_fn=list)
        assert [data for batch in loader for _, data in batch] == [b"%d" % number for number in range(8)], how
    ps.save({"weight": torch.arange(3)}, "shelf://one/run/model.pt")
    assert ps.load("shelf://one/run/model.pt")["weight"].tolist() == [0, 1, 2]
    ps.copy("shelf://one/train/7", "shelf://two/7")
    ps.delete("shelf://one/train/7")
    assert not [*ps.list("shelf://one/train/7")]
    register("shelf")
    assert fsspec.open("shelf://two/7").open().read() == b"7"
    assert fsspec.filesystem("shelf").ls("two", detail=False) == ["two/7"]
    assert command("ls", "shelf://one/train/") == 0
    assert command("cp", "shelf://two/7", "copy") == 0
    assert open("copy", "rb").read() == b"7"
"""


def test_a_scheme_of_a_third_party_works_everywhere_from_one_file(installed, tmp_path):
    installed("penstock-shelf", shelf="penstock_shelf:Shelf")
    script = tmp_path / "everywhere.py"
    script.write_text(EVERYWHERE)
    told = program(script)
    assert told.returncode == 0, told.stderr
    assert "train/6" in told.stdout


def test_its_rules_options_and_limits_are_kept(installed, tmp_path):
    installed("penstock-shelf", shelf="penstock_shelf:Shelf")
    with pytest.raises(InvalidURL, match="101 bytes of UTF-8; the shelf holds 100"):
        parse("shelf://one/" + "a" * 101)
    with pytest.raises(InvalidURL, match="begins with a dot"):
        parse("shelf://one/.hidden")
    with pytest.raises(ConfigError, match=r"shelf:// takes no S3Options.*pass store=ShelfOptions"):
        ps.stat("shelf://one/x", store=ps.S3Options(region="eu-west-1"))
    small = ps.StoreOptions(write=ps.WriteOptions(part_bytes=8 << 20))
    with ps.open("shelf://one/x", "wb", store=small) as file:
        file.write(b"x")
    assert (tmp_path / "shelves/one/x").read_bytes() == b"x"


def test_entry_points_are_read_for_unknown_schemes_alone(monkeypatch):
    monkeypatch.setattr(urls, "_loaded", {})
    monkeypatch.setattr(urls, "_entries", lambda: pytest.fail("what is installed was looked through"))
    assert [parse(url).scheme for url in ("s3://bucket/a", "memory://m/a", "file:///a", "a")] == [
        *("s3", "memory", "file", "file")
    ]


@pytest.mark.parametrize(
    ("distributions", "says"),
    [
        (
            {"penstock-shelf": "penstock_shelf:Shelf", "other-shelf": "penstock_shelf:Tray"},
            r"shelf:// has two providers.*'penstock-shelf'.*'other-shelf': uninstall one",
        ),
        ({"penstock-shelf": "penstock_nowhere:Shelf"}, r"'penstock-shelf', cannot be imported: ModuleNotFoundError"),
        ({"penstock-shelf": "penstock_shelf:NOTHING"}, r"'penstock-shelf', cannot be imported: AttributeError"),
        (
            {"penstock-shelf": "penstock_shelf:BROKEN"},
            r"'penstock-shelf', must be a class derived from.*Store, got a str",
        ),
        ({"penstock-shelf": "penstock_shelf:Tray"}, r"'penstock-shelf', declares the schemes board"),
    ],
)
def test_broken_entry_point_error_names_its_distribution(installed, distributions, says):
    for distribution, value in distributions.items():
        installed(distribution, shelf=value)
    with pytest.raises(ConfigError, match=says):
        parse("shelf://one/x")


def test_unknown_scheme_error_lists_installed_schemes_and_nearest_match(installed):
    installed("penstock-shelf", shelf="penstock_nowhere:Shelf", board="penstock_nowhere:Shelf")
    with pytest.raises(UnknownScheme, match=r"s3://, .*board://, shelf:// and.*mean shelf://"):
        parse("shelv://one/x")


def test_distribution_installed_after_failed_lookup_is_found(installed):
    with pytest.raises(UnknownScheme):
        parse("shelf://one/x")
    installed("penstock-shelf", shelf="penstock_shelf:Shelf")
    assert parse("shelf://one/x").key == "x"


def test_every_scheme_of_the_table_is_its_providers():
    for scheme in urls._TABLE:
        assert scheme in urls.find_store(scheme).schemes


def test_fsspec_refuses_an_unknown_scheme_where_it_is_registered():
    with pytest.raises(UnknownScheme, match="did you mean s3"):
        register("s4")
    made = pickle.loads(pickle.dumps(kind_of("memory")()))
    assert (type(made), made.protocol) == (kind_of("memory"), "memory")


@pytest.mark.parametrize("wrong", [{}, {"region": "r"}, 3])
def test_invalid_store_argument_raises_config_error(wrong):
    with pytest.raises(ConfigError, match="store= must be StoreOptions or S3Options"):
        ps.stat("s3://bucket/key", store=wrong)


def test_a_family_of_schemes_is_one_provider_of_penstock_s_or_of_another_distribution(installed, tmp_path):
    assert urls.find_store("fsspec+memory") is urls.find_store("fsspec+file") is urls.find_store("fsspec+*")
    assert urls.find_store("fsspec+") is urls.find_store("fsspec") is urls.find_store("shelf+x") is None
    text = (tmp_path / "penstock_shelf.py").read_text()
    (tmp_path / "penstock_shelf.py").write_text(f'{text}\n\nclass Family(Shelf):\n    schemes = ("shelf+*",)\n')
    installed("penstock-shelf", **{"shelf+*": "penstock_shelf:Family"})
    with ps.open("shelf+oak://one/x", "wb") as file:
        file.write(b"on oak")
    assert ps.stat("shelf+oak://one/x").url == "shelf+oak://one/x"
    assert urls.find_store("shelf+pine") is urls.find_store("shelf+oak")
    assert "shelf+*" in urls.schemes()
    assert urls.find_store("shelf") is None
