"""Folders as steps: what another library wrote comes back byte for byte, or nothing does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from functools import partial

import pytest
import xxhash

import penstock as ps
from penstock.checkpoint.integrity import BlockChecksums, Manifest
from penstock.checkpoint.run.store import upload_folder
from penstock.errors import AlreadyExists, CheckpointError, ChecksumMismatch, InvalidURL, NotFound, Unusable
from penstock.source import open_source
from tests.edges.launch import program

BLOCK = 1 << 20


@pytest.fixture
def written(tmp_path, seed):
    """Return a folder as a trainer leaves it: an empty file, one of several blocks, one in a folder below."""
    folder, draw = tmp_path / "checkpoint-4", random.Random(seed)
    (folder / "global_step4").mkdir(parents=True)
    (folder / "trainer_state.json").write_bytes(b"")
    (folder / "model-00001-of-00002.safetensors").write_bytes(draw.randbytes(2 * BLOCK + 17))
    (folder / "global_step4/optim.pt").write_bytes(draw.randbytes(1000))
    return folder


def _files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_back_as_it_was_on_every_store(bucket, written, tmp_path):
    run = ps.CheckpointManager(f"{bucket.url}run", keep_last=1, store=bucket.store)
    run.save_folder(2, written)
    run.save_folder(4, written, metric=0.5)
    assert run.steps() == [4]
    assert (run.describe(4).objects, run.describe(4).metric) == (3, 0.5)
    assert len(list(run.verify(4))) == 3
    run.restore_folder(tmp_path / "bare/machine")
    assert _files(tmp_path / "bare/machine") == _files(written)
    assert [each.name for each in (tmp_path / "bare").iterdir()] == ["machine"]


def test_step_folder_is_replaced_only_with_overwrite(written, tmp_path):
    run = ps.CheckpointManager(tmp_path / "run")
    run.save_folder(4, written)
    with pytest.raises(AlreadyExists):
        run.save_folder(4, written)
    (written / "trainer_state.json").write_bytes(b"{}")
    run.save_folder(4, written, overwrite=True)
    (tmp_path / "back").mkdir()
    run.restore_folder(tmp_path / "back", 4)
    assert _files(tmp_path / "back") == _files(written)


def test_restore_into_an_existing_path_is_refused_and_changes_nothing(written, tmp_path):
    run = ps.CheckpointManager(tmp_path / "run")
    run.save_folder(4, written)
    before = _files(written)
    with pytest.raises(AlreadyExists, match="the folder has contents"):
        run.restore_folder(written)
    with pytest.raises(AlreadyExists, match="the folder has contents"):
        run.restore_folder(written / "trainer_state.json")
    assert _files(written) == before


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "global_step4/optim.pt"])
def test_of_a_damaged_folder_nothing_comes_back(written, tmp_path, name):
    run = ps.CheckpointManager(tmp_path / "run")
    run.save_folder(4, written)
    (stored,) = (tmp_path / "run").glob(f"*/*/{name}")
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(data)
    with pytest.raises(ChecksumMismatch, match=name):
        run.restore_folder(tmp_path / "back/checkpoint-4")
    assert list((tmp_path / "back").iterdir()) == []


_DIES = """
import os, signal, sys
import penstock as ps
left = [1]  # files after which it dies
def sync(_):
    left.append(left.pop() - 1)
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = sync
ps.CheckpointManager(sys.argv[1]).restore_folder(sys.argv[2])
"""


def test_a_machine_that_dies_while_a_folder_comes_back_has_no_half_of_it(written, tmp_path):
    run, target = ps.CheckpointManager(tmp_path / "run"), tmp_path / "back/checkpoint-4"
    run.save_folder(4, written)
    died = subprocess.run([sys.executable, "-c", _DIES, tmp_path / "run", target], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    assert [path.name.startswith(".penstock-") for path in target.parent.iterdir()] == [True]
    run.restore_folder(target)
    assert _files(target) == _files(written)


def test_state_step_and_folder_step_cannot_be_restored_as_each_other(written, tmp_path):
    run = ps.CheckpointManager(tmp_path / "run")
    with pytest.raises(NotFound, match="no checkpoint"):
        run.restore_folder(tmp_path / "back")
    run.save(1, {})
    run.save_folder(2, written)
    with pytest.raises(CheckpointError, match="a folder"):
        run.restore()
    with pytest.raises(CheckpointError, match="a state"):
        run.restore_folder(tmp_path / "back", 1)
    assert run.steps() == [1, 2]


def _bytes(folder):
    with open(os.fsencode(folder) + b"/caf\xe9", "wb") as file:  # Latin-1: valid on a disk, in no store
        file.write(b"x")


def _dangling(folder):
    (folder / "link").symlink_to(folder / "nowhere")


def _linked_folder(folder):
    (folder / "link").symlink_to(folder / "global_step4")


def _pipe(folder):
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize("add", [_bytes, _dangling, _linked_folder, _pipe])
def test_unsupported_file_is_named_before_anything_is_sent(written, tmp_path, add):
    add(written)
    with pytest.raises(Unusable, match=r"caf|link|pipe"):
        ps.CheckpointManager(tmp_path / "run").save_folder(1, written)
    assert not (tmp_path / "run").exists()


NAMES = [
    *(
        ".metadata",
        "__0_0.distcp",
        "epoch=0-step=10.ckpt",
        "a b",
        "a+b",
        "a@b",
        "a,b",
        "(1)",
        "ü",
        "u\N{COMBINING DIAERESIS}",
    ),
    *("%41", "a?b#c", "a\\..\\b", "...", "x.", "~", "-rf", "\N{SNOWMAN}", "A", "a", "😀", "n" * 255, "C:"),
    *(".hidden/.deeper/.file", "steps.json", "checkpoint.json", "c d/e=f", "&<>'\"", "con", "$HOME", "*"),
]


def test_any_name_that_a_store_can_hold_is_kept(bucket, tmp_path):
    folder = tmp_path / "odd"
    for number, name in enumerate(NAMES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"%d" % number)
    run = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    run.save_folder(1, folder)
    assert len(list(run.verify(1))) == len(NAMES)
    assert run.clean(older_than_s=-5) == []
    run.restore_folder(tmp_path / "back")
    assert _files(tmp_path / "back") == _files(folder)
    run.delete(1)
    assert not list(ps.list(bucket.url, store=bucket.store))


def test_object_key_too_long_for_the_store_is_refused_before_sending(moto_server, written):
    deep = written.joinpath(*["d" * 200] * 5)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x")
    run = ps.CheckpointManager("s3://no-such-bucket-of-ours/run", store=moto_server.store)
    with pytest.raises(InvalidURL, match="1024"):
        run._put(1, "folder", partial(upload_folder, written), None, overwrite=True)


HOSTILE = {
    "a name of two files": ["{0}/a", "{1}/a"],
    "a file and a folder": ["{0}/a", "{0}/a/b"],
    "no name": ["{0}"],
    "a name that no disk holds": ["{0}/" + "n" * 256],
}


@pytest.mark.parametrize("names", HOSTILE.values(), ids=HOSTILE)
def test_of_a_hostile_folder_nothing_is_written_anywhere(tmp_path, names):
    source, ids = open_source(f"memory://{tmp_path.name}")[0], ("0" * 32, "1" * 32)
    named = [name.format(*ids) for name in names]
    for name in named:
        source.put(f"000000000001/{name}", b"x")
    checksums = BlockChecksums(1, xxhash.xxh3_64_digest(b"x"))
    manifest = Manifest(ids[0], "folder", dict.fromkeys(named, checksums), {"step": 1, "metric": None})
    source.put("000000000001/checkpoint.json", manifest.encode())
    with pytest.raises(Unusable, match="does not take this file"):
        ps.CheckpointManager(f"memory://{tmp_path.name}").restore_folder(tmp_path / "back/folder")
    assert not list((tmp_path / "back").iterdir())


def test_missing_or_empty_folder_is_refused(tmp_path):
    run = ps.CheckpointManager(tmp_path / "run")
    with pytest.raises(NotFound, match="folder does not exist"):
        run.save_folder(1, tmp_path / "none")
    (tmp_path / "empty/below").mkdir(parents=True)
    with pytest.raises(Unusable, match="no files"):
        run.save_folder(1, tmp_path / "empty")


def test_a_link_to_a_file_is_the_file(written, tmp_path):
    (written / "latest").symlink_to(written / "global_step4/optim.pt")
    run = ps.CheckpointManager(tmp_path / "run")
    run.save_folder(1, written)
    run.restore_folder(tmp_path / "back")
    assert _files(tmp_path / "back") == _files(written)
    assert not (tmp_path / "back/latest").is_symlink()


UNREADABLE = """
import os, sys, penstock as ps
run = ps.CheckpointManager("memory://bucket/run")
assert run.steps() == []
os.chdir(sys.argv[1])
if os.geteuid() == 0:  # root may read every folder
    os.setuid(65534)
try:
    run.save_folder(1, "checkpoint-4")
except ps.PenstockError as error:
    print(type(error).__name__, error)
print(run.steps())
"""


def test_folder_with_an_unreadable_folder_is_refused_by_its_name(written, tmp_path):
    (tmp_path / "program.py").write_text(UNREADABLE)
    tmp_path.chmod(0o755)
    (written / "global_step4").chmod(0o300)
    done = program(tmp_path / "program.py", tmp_path, limit_s=100)
    (written / "global_step4").chmod(0o755)
    message = "Unusable cannot save: the folder cannot be read (Permission denied) [checkpoint-4/global_step4]"
    assert done.stdout == f"{message}\n[]\n"
