"""The steps of a run in the store: which are there, which are orphans, and what an index may say of them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
import xxhash

import penstock as ps
from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.integrity import BlockChecksums, Manifest
from penstock.checkpoint.run import store
from penstock.checkpoint.run.steps import describe_steps
from penstock.checkpoint.run.store import StepEntry, decode, encode, upload_folder
from penstock.engine.contracts.driver import Attributes
from penstock.errors import AlreadyExists, CheckpointError, ChecksumMismatch, InvalidURL, NotFound, Unusable
from penstock.source import Source, open_source
from penstock.testing.faults import FAULTS, Match
from tests.checkpoint.run.saver import manager, objects, same, state
from tests.edges.launch import program


def test_orphans_go_once_they_are_old_by_the_stores_clock_and_not_before(bucket):
    run = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    run.save(1, state(1))
    orphans = [f"{bucket.url}run/{folder}/{'ab' * 16}/state.pt" for folder in ("000000000001", "000000000009")]
    theirs = f"{bucket.url}run/readme/notes.txt"
    for url in (*orphans, theirs):
        with ps.open(url, "wb", store=bucket.store) as file:
            file.write(b"half")
    assert run.clean(older_than_s=3600) == []
    assert run.clean(older_than_s=-5) == orphans
    same(run.restore(), state(1))
    assert [each.url for each in ps.list(f"{bucket.url}run/readme/", store=bucket.store)] == [theirs]
    fresh = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    assert fresh.clean(older_than_s=-5) == []
    same(fresh.restore(), state(1))


@pytest.fixture
def kept(server):
    """Prepare a run of 1,000 steps, as if their data were there; return what opens it as a new process would."""
    for step in range(1, 1001):
        save = f"{step:032x}"
        content = {"step": step, "metric": abs(step - 500.5)}
        manifest = Manifest(save, "state", {f"{save}/state.pt": BlockChecksums(1, b"digested")}, content)
        server.put("bucket", f"run/{step:012d}/checkpoint.json", manifest.encode())

    def opened(**rules):
        rules = {"keep_last": 400, "keep_best": 400, "keep_every": 2} | rules
        return ps.CheckpointManager("s3://bucket/run/", store=server.store, **rules)

    return opened


def _requests(server, act):
    before = len(server.seen())
    act()
    return len(server.seen()) - before


def test_request_count_of_a_save_stays_bounded_with_many_kept_steps(server, kept):
    run = kept()
    first = _requests(server, lambda: run.save(1001, {"step": 1001}, metric=7.0))
    assert first > 1000, "nothing says yet what the steps are: each manifest is read, once in the life of the run"
    left = run.steps()
    assert len(left) > 700
    assert all(step % 2 == 0 or step > 300 for step in left), "the even ones, the newest, and the best, around 500"
    for step in range(1002, 1012):
        run = kept() if step % 4 == 0 else run  # a process that begins anew
        assert _requests(server, lambda: run.save(step, {"step": step}, metric=9_000.0 - step)) <= 12, "two of the data"  # noqa: B023  at once
    assert kept().latest() == 1011
    assert kept().steps()[-12:] == [1000, *range(1001, 1012)]
    gone = kept(keep_last=1, keep_best=None, keep_every=None)
    gone.save(1012, {"step": 1012})
    assert gone.steps() == [1012]
    assert len(server.objects("bucket")) == 3, "its manifest, its object, the index"
    assert server.opened() > 16, "deletions go side by side"


def test_the_index_of_steps_spares_looks_and_is_never_believed_against_the_store(tmp_path):
    def run():
        return ps.CheckpointManager(tmp_path, keep_last=2, keep_best=1)

    for step, metric in ((1, 0.1), (2, 0.5), (3, 0.6)):
        run().save(step, {"step": step}, metric=metric)
    shutil.rmtree(tmp_path / "000000000001")  # by hand: what the index says of it counts no more
    run().save(4, {"step": 4}, metric=0.9)
    assert run().steps() == [2, 3, 4]
    run().save(2, {"step": 2}, metric=5.0, overwrite=True)  # no longer the best
    run().save(5, {"step": 5}, metric=0.7)
    assert run().steps() == [3, 4, 5]
    ps.CheckpointManager(tmp_path).save(6, {"step": 6}, metric=0.2)  # a process without rules writes no index
    run().save(7, {"step": 7}, metric=1.0)
    assert run().steps() == [6, 7]
    for damage in (b"", b"{", b"[]", b'{"penstock_steps":2}', b'{"penstock_steps":1,"steps":{"7":["",0.1,"../../x"]}}'):
        (tmp_path / "penstock-steps.json").write_bytes(damage)
        run().save(8, {"step": 8}, metric=3.0, overwrite=True)
        assert run().steps() == [6, 7, 8]
        run().delete(8)
    run().clean(older_than_s=-5)
    assert run().steps() == [6, 7]


def _orphan(folder, step):
    """Leave what a save that died leaves."""
    (folder / f"{step:012d}" / ("ab" * 16)).mkdir(parents=True)
    (folder / f"{step:012d}" / ("ab" * 16) / "state.pt").write_bytes(b"half")


@pytest.mark.parametrize("large", [False, True], ids=["listed", "looked at"])
def test_a_deleted_step_takes_no_kept_one_s_place_where_something_lies_in_its_folder(tmp_path, monkeypatch, large):
    monkeypatch.setattr(store, "_FEW", 1000 if large else 16)
    if large:
        for number in range(1000):  # so that a listing has more than a page
            (tmp_path / f"z{number}").write_bytes(b"")
    _orphan(tmp_path, 10)
    run = ps.CheckpointManager(tmp_path, keep_last=1, keep_best=1)
    run.save(10, {}, metric=0.0)
    run.save(20, {}, metric=0.5)
    run.delete(10)
    run.save(30, {}, metric=0.9)
    assert run.steps() == [20, 30]


def test_a_step_whose_deletion_was_interrupted_takes_no_kept_one_s_place(tmp_path, monkeypatch):
    run = ps.CheckpointManager(tmp_path, keep_last=2)
    for step in (1, 2):
        run.save(step, {})
    delete = Source.delete

    def interrupted(source, keys):
        delete(source, keys)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Source, "delete", interrupted)
        run.delete(2)
    run.save(3, {})
    assert run.steps() == [1, 3]


def test_step_replaced_without_rules_is_ranked_by_its_new_metric(tmp_path):
    ruled, plain = ps.CheckpointManager(tmp_path, keep_last=1, keep_best=1), ps.CheckpointManager(tmp_path)
    ruled.save(1, {}, metric=0.1)
    ruled.save(2, {}, metric=0.5)
    plain.save(1, {}, metric=9.0, overwrite=True)
    ruled.save(3, {}, metric=0.7)
    assert ruled.steps() == [2, 3], "the best is 2 by now"
    plain.delete(2)
    plain.save(2, {}, metric=8.0)
    ruled.save(4, {}, metric=0.6)
    assert ruled.steps() == [4]
    assert len(objects(tmp_path)) == 3, "its manifest, its object, the index: what went was deleted by its own names"


def test_a_step_that_goes_while_manifests_are_read_is_left_out_and_one_replaced_is_read_again(tmp_path, monkeypatch):
    run = ps.CheckpointManager(tmp_path)
    for step in (1, 2, 3):
        run.save(step, {}, metric=float(step))
    begin = Source.lookahead

    def meanwhile(source, spans):
        spans = list(spans)
        with monkeypatch.context() as patch:
            patch.setattr(Source, "lookahead", begin)
            run.delete(1)
            run.save(2, {}, metric=20.0, overwrite=True)
        monkeypatch.setattr(Source, "lookahead", begin)
        return begin(source, iter(spans))

    monkeypatch.setattr(Source, "lookahead", meanwhile)
    assert [(step, said.metric) for step, said in describe_steps(run)] == [(2, 20.0), (3, 3.0)]
    run.save(1, {}, metric=1.0)
    monkeypatch.setattr(Source, "lookahead", meanwhile)
    ps.CheckpointManager(tmp_path, keep_last=3).save(4, {})
    assert run.steps() == [2, 3, 4]
    run.save(1, {}, metric=1.0)
    monkeypatch.setattr(Source, "lookahead", meanwhile)
    run.clean(older_than_s=3600)
    assert run.steps() == [2, 3, 4]


def test_leftovers_of_a_killed_save_are_excluded_from_retention(tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=2)
    for step in (1, 2):
        run.save(step, {"step": step})
    (tmp_path / "000000000005" / ("ab" * 16)).mkdir(parents=True)
    (tmp_path / "000000000005" / ("ab" * 16) / "state.pt").write_bytes(b"half")
    for step in (3, 4):
        ps.CheckpointManager(tmp_path, keep_last=2).save(step, {"step": step})
    assert run.steps() == [3, 4]
    run.save(5, {"step": 5})
    assert run.restore() == {"step": 5}


def test_clean_removes_only_orphaned_save_objects_even_in_an_entire_bucket(tmp_path):
    url = f"memory://{tmp_path.name}"
    run, mine = ps.CheckpointManager(url), f"000000000001/{'ab' * 16}/state.pt"
    folder, torchs = f"{url}/000000000007", {"a": torch.zeros(2)}
    with warnings.catch_warnings(action="ignore"):
        torch.distributed.checkpoint.save(torchs, storage_writer=StorageWriter(folder, layout="torch"), no_dist=True)
    theirs = ["clock/notes", "000000000001/notes.txt", "000000000001/other/notes", "cd" * 16 + "/x", "steps.json"]
    for key in (*theirs, mine):
        with ps.open(f"{url}/{key}", "wb") as file:
            file.write(b"x")
    assert run.clean(older_than_s=-5) == [f"{url}/{mine}"]
    assert {each.key for each in ps.list(url)} > set(theirs)
    with warnings.catch_warnings(action="ignore"):
        torch.distributed.checkpoint.load(torchs, storage_reader=StorageReader(folder), no_dist=True)


def test_clean_continues_with_a_warning_without_upload_listing_support(server, caplog):
    run = manager("s3://bucket/run/")
    server.put("bucket", f"run/000000000003/{'cd' * 16}/state.pt", b"half")
    lacking = replace(FAULTS["denied"], status=501, code="NotImplemented")
    server.fail(lacking, when=Match(verb="uploads", times=None))
    with caplog.at_level("WARNING", "penstock"):
        assert len(run.clean(older_than_s=-5)) == 1
    assert "unfinished uploads were kept" in caplog.text


def test_an_upload_that_never_ended_is_aborted_by_cleaning(server):
    run = manager("s3://bucket/run/")
    source, key = run._source, f"run/000000000003/{'cd' * 16}/state.pt"
    fetcher = source._fetcher()
    fetcher.run(lambda: fetcher.driver.create(key, Attributes()))
    assert server.uploads("bucket") == [key]
    assert run.clean(older_than_s=3600) == []
    assert run.clean(older_than_s=-5) == [source.url(key)]
    assert server.uploads("bucket") == []


# The index of a run's steps is a stranger's document: what it says is read, and whatever else it is counts as none.


def test_an_index_beyond_all_bounds_counts_as_none_and_a_user_s_steps_json_stays(tmp_path):
    (tmp_path / "steps.json").write_bytes(b"mine")
    run = ps.CheckpointManager(tmp_path, keep_last=2)
    with (tmp_path / "penstock-steps.json").open("wb") as file:
        file.truncate(1 << 40)
    for step in (1, 2, 3):
        run.save(step, {}, metric=1.0)
    for damage in (b"[" + b"[]," * (1 << 22), b'{"penstock_steps":1,"steps":{"3":["",1%s]}}' % (b"0" * 400)):
        (tmp_path / "penstock-steps.json").write_bytes(damage)
        run.save(4, {}, overwrite=True)
    assert run.steps() == [3, 4]
    assert (tmp_path / "steps.json").read_bytes() == b"mine"


def test_decoded_step_index_equals_the_encoded_one_in_step_order():
    entries = {
        30: StepEntry("c", None, ()),
        2: StepEntry("a", 0.1, ("x/0.data", "x/1.data")),
        10: StepEntry("", -1.0, ("é",)),
    }
    found = decode(encode(entries))
    assert found == entries
    assert list(found) == [2, 10, 30]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"penstock_steps":2,"steps":{}}',
        b'{"penstock_steps":1}',
        b'{"penstock_steps":1,"steps":[]}',
        b'{"penstock_steps":1,"steps":{"x":["a",1]}}',
        b'{"penstock_steps":1,"steps":{"1":["a"]}}',
        b'{"penstock_steps":1,"steps":{"1":[7,1]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,"../x"]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,"/x"]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,7]}}',
        b'{"penstock_steps":1,"steps":{"1":["a",1,"x"],"2":null}}',
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:50]),
)
def test_invalid_step_index_document_decodes_to_nothing(data):
    assert decode(data) == {}


@pytest.mark.parametrize("metric", ["0.5", None, [], 10**400], ids=["text", "none", "list", "beyond floats"])
def test_metric_that_cannot_be_a_float_becomes_none(metric):
    assert StepEntry.of(Manifest("s", "state", {}, {"metric": metric}), "etag") == StepEntry("etag", None, ())
    assert decode(json.dumps({"penstock_steps": 1, "steps": {"1": ["a", metric]}}).encode())[1].metric is None


def test_of_a_damaged_manifest_nothing_is_known_so_that_it_is_read_again():
    assert StepEntry.of(None, "etag") == StepEntry("", None, ())


# Folders as steps: what another library wrote comes back byte for byte, or nothing does.


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
    with pytest.raises(NotFound, match="no committed checkpoint"):
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
