"""Each parameter of a drop-in or an adapter has an effect, is refused, or is in the list of those without effect."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import tarfile
from pathlib import Path

import pytest

import penstock as ps
from penstock.compat import arguments, streaming, webdataset
from penstock.compat import multistorageclient as msc
from penstock.compat.dataflux_pytorch.lightning import DatafluxLightningCheckpoint, GCSDistributedWriter
from penstock.compat.multistorageclient.pathlib import MultiStoragePath
from penstock.compat.multistorageclient.types import SourceVersionCheckMode
from penstock.compat.osstorchconnector import OssDCPFileSystem
from penstock.compat.s3torchconnector.dcp import S3StorageWriter
from penstock.compat.s3torchconnector.lightning import S3LightningCheckpoint
from penstock.errors import ConfigError, Unsupported, Unusable
from penstock.interop import obspec
from penstock.interop.fsspec import PenstockFileSystem

HOME = Path(ps.__file__).parent
TUNES = "Penstock chooses requests, buffers and threads itself"
NO_LINKS = "objects have no links"
NO_FOLDERS = "a prefix is not created, so nothing has modes or parents, or exists before"
NO_PROVIDERS = "there are no metadata providers"
ATOMIC = "each write is atomic, verified, and fails without progress"
# Parameters that a function does not read, and the reason; docs/migrate.md and docs/fsspec.md say the same.
WITHOUT_EFFECT = {
    "compat/dataflux_pytorch/multipart_upload/multipart.py": {
        "upload_chunks_concurrently_from_bytesio": {"deadline checksum timeout": ATOMIC},
    },
    "compat/filesystem.py": {"ObjectFileSystem.mkdir": {"path": NO_FOLDERS}},
    "compat/multistorageclient/client.py": {
        "StorageClient.open": {"buffering memory_load_limit prefetch_file": TUNES, "atomic": ATOMIC},
        "StorageClient.list_recursive": {"max_workers look_ahead": TUNES},
        "StorageClient.download_file": {"metadata": "the object's own is requested"},
        "StorageClient.download_files": {"metadata": "the objects' own are requested"},
        "StorageClient.sync_from": {"description num_worker_processes": TUNES, "commit_metadata": NO_PROVIDERS},
        "StorageClient.commit_metadata": {"prefix": NO_PROVIDERS},
    },
    "compat/multistorageclient/config.py": {
        "StorageClientConfig.from_dict": {"skip_validation": "only what is used is validated, in any case"},
    },
    "compat/multistorageclient/shortcuts.py": {
        "list_recursive": {"max_workers look_ahead": TUNES},
        "commit_metadata": {"url": NO_PROVIDERS},
    },
    "compat/multistorageclient/torch.py": {"MultiStorageFileSystemReader.__init__": {"thread_count": TUNES}},
    "compat/multistorageclient/xarray.py": {"open_zarr": {"msc_max_workers": TUNES}},
    "compat/multistorageclient/zarr.py": {"open_consolidated": {"msc_max_workers": TUNES}},
    "compat/osstorchconnector/datasets.py": {"TarMembers.made": {"key": "the name of the member is the key"}},
    "compat/s3torchconnector/s3reader.py": {
        "DCPOptimizedConstructor.set_item_ranges_by_file": {"plan_items storage_data base_path": TUNES},
    },
    "compat/streaming.py": {
        "StreamingDataset.__init__": {"keep_zip predownload cache_limit": "nothing is kept on a disk"},
        "StreamingDataset.get_item": {"retry": "reads are retried by the store's options"},
    },
    "compat/webdataset/datasets.py": {
        "WebDataset.__init__": {
            "cache_size url_to_name": "cache_dir is refused",
            "detshuffle": "each order depends on seed and epoch alone",
            "verbose": "what is read is logged by penstock.events",
        },
    },
    "compat/webdataset/fluid.py": {
        "ignore_and_continue": {"exn": "ignored, by its name"},
        "ignore_and_stop": {"exn": "ignored, by its name"},
    },
    "compat/zarrdataset.py": {
        "ZarrIterableDataset.check_distribution_ability": {"array_name": "it is for the library's messages"},
    },
    "interop/arrow.py": {"PenstockHandler.create_dir": {"path recursive": NO_FOLDERS}},
    "interop/obspec.py": {
        "Store.put": {"use_multipart chunk_size max_concurrency": TUNES},
        "Store.put_async": {"use_multipart chunk_size max_concurrency": TUNES},
    },
    "interop/fsspec/coroutines.py": {
        "Coroutines._cat_ranges": {"batch_size": TUNES},
        "Coroutines._cat": {"batch_size": TUNES},
        "Coroutines._rm": {"batch_size": TUNES},
    },
    "interop/fsspec/filesystem.py": {
        "PenstockFileSystem.mkdir": {"path create_parents": NO_FOLDERS},
        "PenstockFileSystem.makedirs": {"path exist_ok": NO_FOLDERS},
        "PenstockFileSystem.rmdir": {"path": NO_FOLDERS},
    },
    "interop/path.py": {
        "Names.isabs": {"path": "each path is absolute"},
        "PenstockPath.__new__": {"*_ **__": "__init__ has them"},
        "PenstockPath.__rtruediv__": {"key": "refused"},
        "PenstockPath.stat": {"follow_symlinks": NO_LINKS},
        "PenstockPath.exists": {"follow_symlinks": NO_LINKS},
        "PenstockPath.is_file": {"follow_symlinks": NO_LINKS},
        "PenstockPath.is_dir": {"follow_symlinks": NO_LINKS},
        "PenstockPath.glob": {"recurse_symlinks": NO_LINKS},
        "PenstockPath.open": {"buffering": TUNES},
        "PenstockPath.mkdir": {"mode parents exist_ok": NO_FOLDERS},
    },
}


def unread(node, prefix=""):
    """Yield name and unread parameters of the functions below a node, without those that only raise."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef):
            yield from unread(each, f"{prefix}{each.name}.")
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            words = each.args
            given = [word.arg for word in (*words.posonlyargs, *words.args, *words.kwonlyargs)]
            given += [f"{stars}{word.arg}" for stars, word in (("*", words.vararg), ("**", words.kwarg)) if word]
            names = [word for part in each.body for word in ast.walk(part)]
            read = {word.id for word in names if isinstance(word, ast.Name)} | {"self", "cls"}
            if "locals" in read:
                read |= streaming._ONLY.keys()
            lost = [name for name in given if name.strip("*") not in read]
            abstract = any(getattr(mark, "id", "") == "abstractmethod" for mark in each.decorator_list)
            if lost and not abstract and not _raises(each.body) and each.name not in ("__exit__", "__aexit__"):
                yield f"{prefix}{each.name}", lost
        elif isinstance(each, ast.If | ast.With | ast.Try):
            yield from unread(each, prefix)


def _raises(body):
    last = body[-1]
    refuses = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    named = refuses and getattr(last.value.func, "id", "") in ("refuse", "_refuse")
    return isinstance(last, ast.Raise) or named


def _public(name):
    hidden = [each for each in name.split(".") if each.startswith("_") and not each.startswith("__")]
    return not hidden or name.startswith("Coroutines.")


def test_each_unread_parameter_of_a_drop_in_is_in_the_list():
    found = {}
    for path in sorted((*HOME.glob("compat/**/*.py"), *HOME.glob("interop/**/*.py"))):
        lost = {name: set(names) for name, names in unread(ast.parse(path.read_text())) if _public(name)}
        if lost:
            found[path.relative_to(HOME).as_posix()] = lost
    listed = {
        file: {name: set(" ".join(reasons).split()) for name, reasons in functions.items()}
        for file, functions in WITHOUT_EFFECT.items()
    }
    assert found == listed


FILES = PenstockFileSystem()
URL = "memory://settings/key"
FOLDER, COPY = "memory://settings", f"{URL}-2"
# What methods of fsspec with keywords need besides, and their names.
NEEDED = (
    ((URL,), ("cat", "cat_file", "disk_usage", "du", "exists", "find", "info", "lexists", "makedir", "mkdir", "open")),
    ((URL,), ("read_bytes", "read_text", "rm", "sign", "stat", "touch")),
    ((FOLDER,), ("listdir", "ls", "walk")),
    ((f"{FOLDER}/*",), ("glob",)),
    ((URL, COPY), ("copy", "cp", "cp_file", "move", "mv", "rename")),
    ((URL, "copy"), ("download", "get", "get_file")),
    ((__file__, URL), ("put", "put_file", "upload")),
    ((URL, b"data"), ("pipe", "pipe_file", "write_bytes")),
    ((URL, "data"), ("write_text",)),
    (([URL], [0], [1]), ("cat_ranges",)),
)
CALLS = {name: given for given, names in NEEDED for name in names}


def test_each_method_of_fsspec_with_keywords_is_in_the_list():
    names = [name for name in dir(FILES) if not name.startswith("_") and name != "fsid"]
    methods = {name: getattr(FILES, name) for name in names}
    found = {name for name, each in methods.items() if inspect.isroutine(each) and _keywords(each)}
    assert found == CALLS.keys() | {"open_async"}


def _keywords(method):
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(method).parameters.values())


@pytest.mark.parametrize("name", CALLS)
def test_fsspec_refuses_a_keyword_that_would_be_lost(name):
    FILES.pipe_file(URL, b"data")
    with pytest.raises(Unusable, match="version_id"):
        list(getattr(FILES, name)(*CALLS[name], version_id="1") or ())
    assert FILES.cat_file(URL, version_id=None, refresh=True) == b"data"


def test_fsspec_refuses_text_options_of_a_binary_file():
    FILES.pipe_file(URL, b"data")
    with pytest.raises(Unsupported, match="no option encoding"):
        FILES.open(URL, "rb", encoding="utf-8")


CLIENT = msc.resolve_storage_client(__file__)[0]
PATH = ps.Path("memory://settings/key")


def _webdataset():
    packed = io.BytesIO()
    tarfile.open(fileobj=packed, mode="w").close()
    FILES.pipe_file("memory://settings/shard.tar", packed.getvalue())
    return webdataset.WebDataset("memory://settings/shard.tar", empty_check=False)


REFUSED = {
    "lightning of s3torchconnector": (lambda: S3LightningCheckpoint("r").save_checkpoint({}, "s3://b/k", {}), Unusable),
    "lightning of dataflux": (lambda: DatafluxLightningCheckpoint("p").save_checkpoint({}, "gs://b/k", {}), Unusable),
    "writer of s3torchconnector": (lambda: S3StorageWriter("r", "s3://b/k", serialization_format=1), TypeError),
    "writer of dataflux": (lambda: GCSDistributedWriter("gs://b/k", "p", serialization_format=1), TypeError),
    "writer of osstorchconnector": (
        lambda: OssDCPFileSystem("https://oss-cn-beijing.aliyuncs.com").writer("oss://b/k", serialization_format=1),
        TypeError,
    ),
    "attributes of an msc sync": (lambda: CLIENT.sync_from(CLIENT, preserve_source_attributes=False), Unsupported),
    "open of msc": (lambda: msc.open(__file__, lost=1), TypeError),
    "open of an msc path": (lambda: MultiStoragePath(__file__).open(lost=1), TypeError),
    "load of msc.numpy": (lambda: msc.numpy.load(io.BytesIO(), lost=1), TypeError),
    "shuffle of webdataset": (lambda: _webdataset().shuffle(10, lost=1), Unsupported),
    "shuffle of a WebLoader": (lambda: webdataset.WebLoader(_webdataset()).shuffle(10, seed=1), Unsupported),
    "option of obspec's get": (
        lambda: obspec.Store("memory://settings/").get("key", options={"lost": 1}),
        obspec.NotSupportedError,
    ),
    "put_async of obspec": (
        lambda: asyncio.run(obspec.Store("memory://settings/").put_async("key", b"", lost=1)),
        TypeError,
    ),
    "put of obspec": (lambda: obspec.Store("memory://settings/").put("key", b"", lost=1), TypeError),
    "glob of a path": (lambda: PATH.glob("*", case_sensitive=False), Unusable),
    "touch of a path": (lambda: PATH.touch(0o600), Unusable),
    "rename of a path": (lambda: PATH.rename("memory://settings/new", recursive=False), TypeError),
    "copy of a path": (lambda: PATH.copy(ps.Path("memory://settings/new"), preserve_metadata=True), Unusable),
    "move of a path": (lambda: PATH.move(ps.Path("memory://settings/new"), lost=1), Unusable),
    "attributes of an msc reader": (lambda: msc.open(__file__, attributes={"a": "1"}), ConfigError),
    "relative_to of a path": (lambda: PATH.relative_to("memory://settings/", "key"), TypeError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_cannot_be_kept_is_refused(name):
    FILES.pipe_file(URL, b"data")
    call, error = REFUSED[name]
    with pytest.raises(error):
        call()
    assert FILES.cat_file(URL) == b"data"
    assert not FILES.exists("memory://settings/new")


def test_options_of_torchs_writer_without_effect_are_named(monkeypatch):
    monkeypatch.setattr(arguments, "_named", set())
    with pytest.warns(UserWarning, match=r"MultiStorageFileSystemWriter\(thread_count=…\) is not honoured"):
        msc.torch.MultiStorageFileSystemWriter("/none/dcp", thread_count=2)
    files = OssDCPFileSystem("https://oss-cn-beijing.aliyuncs.com")
    with pytest.warns(UserWarning, match=r"OssStorageWriter\(sync_files=…\) is not honoured"):
        files.writer("oss://bucket/dcp", sync_files=False)


def test_obspecs_tuning_has_no_effect():
    obspec.Store("memory://settings/").put("key", b"1", use_multipart=True, chunk_size=1, max_concurrency=1)
    assert FILES.cat_file(URL) == b"1"


def test_a_strict_path_must_exist():
    with pytest.raises(FileNotFoundError):
        ps.Path("memory://settings/none").resolve(strict=True)
    assert ps.Path("memory://settings/none").resolve().name == "none"


@pytest.mark.parametrize("how", [{"disable_read_cache": True}, {"check_source_version": SourceVersionCheckMode.ENABLE}])
def test_msc_reads_without_the_cache_on_request(tmp_path, how):
    here = {"storage_provider": {"type": "file", "options": {"base_path": str(tmp_path)}}}
    client = msc.StorageClient(msc.StorageClientConfig.from_dict({"profiles": {"here": here}}, "here"))
    client.write("key", b"data")
    with client.open("key", **how) as file:
        assert file.read() == b"data"
    assert client._uncached().cache.mode == "off"
