"""``penstock zarr``: its options, its help, and what it refuses."""

from __future__ import annotations


def test_the_help_has_an_example_and_wrong_options_are_one_line(penstock, tmp_path):
    shown = penstock("zarr", "copy", "--help")
    assert shown.returncode == 0
    assert "--chunks" in shown.stdout
    assert "penstock zarr copy" in shown.stdout
    for words, said in (
        (("--chunks", "1,x"), "write 1,180,360"),
        (("--resume", "--overwrite"), "choose one"),
    ):
        done = penstock("zarr", "copy", str(tmp_path), str(tmp_path / "b"), *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert said in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
