"""What is measured, as data: loads, engines, and the conditions under which each reads or writes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.environments import OURS
from benchmarks.objects import Load

__all__ = ["CONDITIONS", "CONNECTOR", "DIALECTS", "LOADS", "OURS", "Condition", "Run", "quick"]


@dataclass(frozen=True)
class Run:
    """One engine under one condition: ``peers/<script>.py`` in a process and an environment of its own.

    Attributes:
        script: Name of the peer's script.
        requirement: What pip installs for it, alone, separated by spaces; ``OURS`` for nothing.
        threads: Threads that read, or ranges in flight, where the engine lets its user choose.
        most: Read at most so many objects: slow engines would take hours, and a rate is a rate.
        beside: The script whose objects/s and CPU this one is held against in the last column.
    """

    script: str
    requirement: str = OURS
    threads: int = 1
    most: int = 1 << 30
    beside: str = ""

    @property
    def name(self) -> str:
        """What tables call it."""
        words = self.script.replace("_", " ")
        return f"{words}, {self.threads} threads" if self.threads > 1 else words

    @property
    def engine(self) -> str:
        """``floor``, ``penstock``, …: what ``--only`` selects by."""
        return self.script.partition("_")[0]


@dataclass(frozen=True)
class Condition:
    """What is read, how far away it is, and what else the reading process has to do.

    Attributes:
        name: Short name, for ``--only``, files and bars.
        title: What the table is headed.
        load: Name of the load.
        port: ``plain``, ``late`` (30 ms to the first byte) or ``tls``.
        runs: The engines.
        batch: Objects per batch; each is followed by ``compute_s``.
        compute_s: CPU seconds of pure Python in the main thread after each batch.
        writes: The load's one object is written instead, from memory; what arrived is compared after each run.
        rounds: At most so many: a run is to end before one's patience does.
    """

    name: str
    title: str
    load: str
    port: str
    runs: tuple[Run, ...]
    batch: int = 64
    compute_s: float = 0.0
    writes: bool = False
    rounds: int = 1 << 30


LOADS = (
    Load("small", 100 << 10, 20_000),
    Load("tiny", 10 << 10, 20_000),
    Load("big", 1 << 30, 1),
    Load("photos", 69 << 10, 2_000, photos=True),
    Load("state", 1 << 30, 1, layouts=("000000.bin", "run")),
    Load("safetensors", 1 << 30, 1, layouts=("000000.bin", "model.safetensors")),
    Load("ranks", 1 << 30, 1, layouts=("000000.bin", "dcp-ours", "dcp-torch")),
    Load("array", 256 << 10, 2_000, array=True),
    Load("table", 1 << 30, 1, table=True),
    *(Load(f"fields{per}", 180 * 360 * 4, 2_000, fields=(per, 0)) for per in (1, 4, 32)),
    Load("fields-shards", 180 * 360 * 4, 2_000, fields=(1, 32)),
    Load("shards", 70_000, 20_000, shards=500),
    Load("shards-tiny", 10_000, 140_000, shards=4000),
    Load("shards-many", 70_000, 10_000, shards=10),
    Load("parquet", 70_000, 10_000, rows=2500),
    Load("pairs", 100 << 10, 20_000, beside=1 << 10),
    Load("tokens", 128 << 20, 16),
    Load("large", 4 << 30, 1, layouts=("000000.bin",)),
)

_TORCH = "torch==2.13.0 numpy==2.4.6"
CONNECTOR = f"s3torchconnector[dcp]==1.5.0 pillow {_TORCH}"
_OBSTORE = "obstore==0.12.1"
_BOTO3 = "boto3==1.44.5"
_ARROW = "pyarrow==26.0.1"
# The newest botocore that its aiobotocore allows; our tests have a newer one.
_S3FS = f"s3fs==2026.9.0 botocore==1.43.117 {_ARROW} {_TORCH}"
_RUNAI = f"runai-model-streamer[s3]==0.17.0 {_TORCH}"
_SAFETENSORS = f"safetensors==0.8.0 {_TORCH}"
_ZARR = "zarr==3.1.6 obstore==0.12.1 s3fs==2026.9.0 botocore==1.43.117"
_OVER_OBSTORE = f"zarr==3.1.6 obstore==0.12.1 {_TORCH}"
# Without torch, which it does not need for arrays of NumPy.
_FIELDS = "python3.12 insitubatch==0.2.0 zarr==3.3.0 obstore==0.12.1 numpy==2.4.6"
_ZARRS = f"zarrs==0.2.3 {_OVER_OBSTORE}"
_XBATCHER = f"xbatcher==0.4.0 {_OVER_OBSTORE}"
_ZARR_TORCH = f"zarr-torch-dataset==0.0.9 {_OVER_OBSTORE}"
_MULTISTORAGE = "multi-storage-client[boto3]==1.3.1"
_PAIR = (
    Run("penstock_map", beside="s3torchconnector_map"),
    Run("penstock_iterable", beside="s3torchconnector_iterable"),
)


def _connectors(documented: int, threaded: int, threads: int) -> tuple[Run, ...]:
    """Amazon's connector: its datasets as documented, and as many threads as help on top of the map-style one."""
    return (
        Run("s3torchconnector_map", CONNECTOR, most=documented),
        Run("s3torchconnector_map", CONNECTOR, most=threaded, threads=threads),
        Run("s3torchconnector_iterable", CONNECTOR, most=documented),
    )


def _busy(ours: int, theirs: int) -> tuple[Run, ...]:
    """Datasets that read ahead by themselves: what beside a training step in the same process is for."""
    return (
        Run("penstock_iterable", most=ours, beside="s3torchconnector_iterable"),
        Run("s3torchconnector_iterable", CONNECTOR, most=theirs),
    )


def _others(count: int) -> tuple[Run, ...]:
    """Clients that make no datasets: one call for each object from threads, or one for a batch."""
    return (
        Run("boto3_get", _BOTO3, most=count, threads=16),
        Run("s3fs_cat", _S3FS, most=count),
        Run("multistorageclient_read", _MULTISTORAGE, most=count, threads=16),
    )


def _decoders(theirs: int) -> tuple[Run, ...]:
    """Two threads or workers each, for two cores."""
    return (
        Run("floor_decode", threads=2),
        Run("penstock_decode", threads=2, beside="floor_decode"),
        Run("penstock_train", threads=2),
        Run("s3torchconnector_decode", CONNECTOR, threads=2, most=theirs),
    )


_NEAR = (Run("floor", threads=16), *_PAIR, *_connectors(4000, 8000, 16))
_NEAR_BUSY = (Run("floor", threads=16, most=5120), *_busy(5120, 2560))
_FAR = (Run("floor", threads=256), *_PAIR, *_connectors(128, 2048, 64), *_others(1024))
_FAR_BUSY = (Run("floor", threads=256, most=10_240), *_busy(10_240, 256))
_WHOLE = (Run("floor_big", threads=4), Run("penstock_open", beside="obstore_get"), Run("obstore_get", _OBSTORE))
_WRITE = (Run("floor_write", threads=4), Run("penstock_write", beside="obstore_put"), Run("obstore_put", _OBSTORE))
_EVENTS = (
    Run("floor", threads=16),
    *(Run(f"penstock_{each}") for each in ("map", "heard", "written", "asked", "scraped")),
)
_UNKNOWN = (
    Run("penstock_map"),
    Run("penstock_unknown_map", beside="penstock_map"),
    Run("penstock_iterable"),
    Run("penstock_unknown_iterable", beside="penstock_iterable"),
)
DIALECTS = ("gcs_keys", "gcs_token", "oss", "azure_key", "azure_token", "web")
_DIALECTS = (Run("penstock_map"), *(Run(f"penstock_{way}", beside="penstock_map") for way in DIALECTS))
_LOAD = (
    Run("floor_big", threads=4),
    Run("penstock_load", beside="s3torchconnector_load"),
    Run("penstock_manager_load"),
)
_SAVE = (Run("obstore_put", _OBSTORE), Run("penstock_save"), Run("penstock_manager_save"))
_AMAZON_LOAD = Run("s3torchconnector_load", CONNECTOR)  # plain only: it trusts the system's certificates alone
_LOAD_SAFETENSORS = (
    Run("floor_big", threads=4),
    Run("penstock_safetensors_load", beside="runai_safetensors_load"),
    Run("runai_safetensors_load", _RUNAI),
)
_SAVE_MORE = (
    Run("penstock_safetensors_save"),
    Run("penstock_dcp_save"),
    Run("s3torchconnector_save", CONNECTOR),
    Run("s3torchconnector_dcp_save", CONNECTOR),
    Run("s3fs_dcp_save", _S3FS),
)
_ARRAY = (
    Run("penstock_zarr", threads=64, beside="obstore_zarr"),
    Run("obstore_zarr", _ZARR, threads=64),
    Run("s3fs_zarr", _ZARR, threads=64),
)
_CHUNKS = (
    Run("penstock_zarr_get", threads=64, beside="obstore_zarr_get"),
    Run("obstore_zarr_get", _ZARR, threads=64),
    Run("s3fs_zarr_get", _ZARR, threads=64, most=1000),
)
_EPOCHS = (
    Run("floor_epochs", threads=2),
    Run("penstock_epochs", threads=64, beside="insitubatch_epochs"),
    Run("insitubatch_epochs", _FIELDS, threads=64),
    Run("penstock_windows_epochs", threads=64, beside="insitubatch_epochs"),  # of as many bytes as the others'
    Run("obstore_windows_epochs", _ZARR_TORCH, threads=64),
    Run("zarrs_windows_epochs", _ZARRS, threads=64),
    Run("obstore_map_epochs", _ZARR_TORCH, threads=64),
    Run("xbatcher_epochs", _XBATCHER, threads=2),
    Run("zarrtorchdataset_epochs", _ZARR_TORCH, threads=2),
)
_STATISTICS = Run("penstock_statistics", threads=64, beside="penstock_epochs")
# insitubatch 0.1.0 decoded whole shards as chunks; 0.2.0 was not tried. zarr-torch-dataset says that it supports none.
_WITHOUT_SHARDS = ("insitubatch_epochs", "zarrtorchdataset_epochs")
_EPOCHS_OF_SHARDS = tuple(
    replace(run, beside="obstore_windows_epochs" if run.beside else "")
    for run in _EPOCHS
    if run.script not in _WITHOUT_SHARDS
)
_LOAD_RANKS = (
    Run("penstock_dcp_load", beside="s3torchconnector_dcp_load"),
    Run("s3torchconnector_dcp_load", CONNECTOR),
    Run("s3fs_dcp_load", _S3FS),
)
_RANGES = (
    Run("penstock_cat_ranges", most=10_000, beside="s3fs_cat_ranges"),
    Run("s3fs_cat_ranges", _S3FS, most=10_000),
)
_TABLE = (
    Run("penstock_read_table", beside="s3fs_read_table"),
    Run("s3fs_read_table", _S3FS),
    Run("pyarrow_read_table", f"{_ARROW} numpy==2.4.6"),
)
_LITDATA = f"litdata==0.2.76 obstore==0.12.1 {_TORCH}"
_WEBDATASET = f"webdataset==1.0.2 {_TORCH}"
_ENERGON = (
    "megatron-energon==7.4.1 multi-storage-client[boto3]==1.3.1 s3fs==2026.9.0 botocore==1.43.117 boto3==1.43.117 "
    f"webdataset==1.0.2 {_TORCH}"
)
# Older releases than ours of what it requires, but for torch.
_MOSAIC = (
    "mosaicml-streaming==0.13.0 google-cloud-storage==3.2.0 transformers==4.57.1 tokenizers==0.22.1 xxhash==3.6.0 "
    "huggingface_hub==0.36.0 numpy==2.1.3 torch==2.13.0"
)
_MDS = (Run("penstock_mds", beside="streaming_mds"), Run("streaming_mds", _MOSAIC))
_SHARDS = (
    Run("floor_shards", threads=8),
    Run("penstock_shards", beside="webdataset_shards"),
    Run("penstock_full_shards", beside="penstock_objects"),
    Run("penstock_objects"),
    Run("webdataset_shards", _WEBDATASET),
    Run("s3torchconnector_shards", CONNECTOR),
    Run("litdata_shards", _LITDATA),
    Run("energon_shards", _ENERGON),
)
_DATASETS = "datasets==5.2.0 aiohttp==3.14.5 pyarrow==26.0.1"
_PARQUET = (
    Run("floor_rows", threads=2),
    Run("penstock_rows", beside="datasets_rows"),
    Run("penstock_rows_in_order", beside="pyarrow_rows"),
    Run("pyarrow_rows", f"{_ARROW} numpy==2.4.6"),
    Run("datasets_rows", _DATASETS),
)
_MIXTURE = (
    Run("penstock_mixture", beside="penstock_objects"),
    Run("penstock_objects"),
    Run("penstock_mixed_shards", beside="penstock_shards"),
    Run("penstock_shards"),
)
_PAIRS = (Run("penstock_pairs", beside="penstock_singles"), Run("penstock_singles"))
_TOKENS = (
    Run("floor_tokens", threads=8),
    Run("floor_mixed_tokens", threads=8),
    Run("penstock_tokens", beside="floor_tokens"),
    Run("penstock_stored_tokens", beside="floor_tokens"),
    Run("penstock_packed_tokens", beside="penstock_tokens"),
)
_TOKENS_LATE = (*(replace(run, threads=64) for run in _TOKENS[:2]), *_TOKENS[2:])
_BESIDE_25_MS = "; every batch of 64 is followed by 25 ms of pure Python in the main thread"

CONDITIONS = (
    Condition("small", "100 KiB objects", "small", "plain", (*_NEAR, *_others(1536))),
    Condition("tiny", "10 KiB objects", "tiny", "plain", _NEAR),
    Condition("dialects", "10 KiB objects in each store's dialect", "tiny", "plain", _DIALECTS),
    Condition("small-busy", f"100 KiB objects{_BESIDE_25_MS}", "small", "plain", _NEAR_BUSY, compute_s=0.025),
    Condition("tiny-busy", f"10 KiB objects{_BESIDE_25_MS}", "tiny", "plain", _NEAR_BUSY, compute_s=0.025),
    Condition("late", "100 KiB objects, 30 ms to the first byte", "small", "late", _FAR, batch=256),
    Condition(
        "late-busy",
        "100 KiB objects, 30 ms to the first byte; every batch of 256 is followed by 100 ms of pure Python",
        "small",
        "late",
        _FAR_BUSY,
        batch=256,
        compute_s=0.1,
    ),
    Condition("unknown", "100 KiB objects whose size is not known beforehand", "small", "plain", _UNKNOWN),
    Condition(
        "unknown-busy",
        "100 KiB objects of unknown size, 30 ms to the first byte; every batch of 256 is followed by 100 ms of Python",
        "small",
        "late",
        _UNKNOWN[2:],
        batch=256,
        compute_s=0.1,
    ),
    Condition(
        "big", "one object of 1 GiB into memory", "big", "plain", (*_WHOLE, Run("s3torchconnector_open", CONNECTOR))
    ),
    Condition("big-tls", "one object of 1 GiB into memory, over TLS", "big", "tls", _WHOLE),
    Condition(
        "write",
        "one object of 1 GiB written from memory",
        "big",
        "plain",
        (*_WRITE, Run("boto3_upload", _BOTO3)),
        writes=True,
    ),
    Condition("write-tls", "one object of 1 GiB written from memory, over TLS", "big", "tls", _WRITE, writes=True),
    Condition("decode", "69 KiB JPEG images decoded, resized and collated", "photos", "plain", _decoders(2000)),
    Condition(
        "decode-late",
        "69 KiB JPEG images decoded, resized and collated, 30 ms to the first byte",
        "photos",
        "late",
        _decoders(512),
    ),
    Condition(
        "events",
        "100 KiB objects: what events cost when one listens, and what asking costs when nobody does",
        "small",
        "plain",
        _EVENTS,
    ),
    Condition("ranges", "10,000 ranges of 10 KiB by one cat_ranges", "tiny", "plain", _RANGES, rounds=3),
    Condition(
        "table", "4 of 40 columns of a Parquet file of 1 GiB by pq.read_table", "table", "plain", _TABLE, rounds=3
    ),
    Condition("table-late", "the same, 30 ms to the first byte", "table", "late", _TABLE, rounds=3),
    Condition("state-save", "a state of 1 GiB saved", "state", "plain", (*_SAVE, *_SAVE_MORE), writes=True, rounds=3),
    Condition("state-save-tls", "a state of 1 GiB saved, over TLS", "state", "tls", _SAVE, writes=True, rounds=3),
    Condition("state-load", "a state of 1 GiB loaded", "state", "plain", (*_LOAD, _AMAZON_LOAD), rounds=3),
    Condition("state-load-tls", "a state of 1 GiB loaded, over TLS", "state", "tls", _LOAD, rounds=3),
    Condition(
        "state-async",
        "a state of 1 GiB saved in the background while steps go on",
        "state",
        "plain",
        (Run("penstock_async_save"), Run("penstock_async_save_cpu")),
        writes=True,
        rounds=3,
    ),
    Condition(
        "state-safetensors",
        "a state of 1 GiB loaded from safetensors",
        "safetensors",
        "plain",
        (*_LOAD_SAFETENSORS, Run("safetensors_load", _SAFETENSORS)),
        rounds=3,
    ),
    Condition(
        "state-safetensors-tls",
        "a state of 1 GiB loaded from safetensors, over TLS",
        "safetensors",
        "tls",
        _LOAD_SAFETENSORS,
        rounds=3,
    ),
    Condition("state-ranks", "a state of 1 GiB loaded by four ranks", "ranks", "plain", _LOAD_RANKS, rounds=3),
    Condition("zarr", "an array of chunks of 256 KiB, zstd, read by zarr, 64 chunks at once", "array", "plain", _ARRAY),
    Condition("zarr-late", "the same, 30 ms to the first byte", "array", "late", _ARRAY),
    Condition("zarr-get", "its chunks as zarr asks a store for them, undecoded, 64 at once", "array", "plain", _CHUNKS),
    *(
        Condition(
            f"fields-{per}",
            f"epochs over fields of 253 KiB, {per} in a chunk, in batches of 32",
            f"fields{per}",
            "plain",
            runs,
        )
        for per, runs in ((1, _EPOCHS), (4, (*_EPOCHS, _STATISTICS)), (32, _EPOCHS))
    ),
    Condition(
        "fields-shards",
        "epochs over fields of 253 KiB, each a chunk, 32 in a shard",
        "fields-shards",
        "plain",
        _EPOCHS_OF_SHARDS,
    ),
    Condition(
        "fields-4-late",
        "epochs over fields, 4 in a chunk, 30 ms to the first byte",
        "fields4",
        "late",
        _EPOCHS[1:],
        rounds=2,  # two of the peers take two minutes each
    ),
    Condition("shards", "samples of 30 to 110 KB in tar files of 500", "shards", "plain", _SHARDS, rounds=3),
    Condition("shards-late", "the same, 30 ms to the first byte", "shards", "late", _SHARDS, rounds=3),
    Condition(
        "shards-tiny", "samples of 4 to 16 KB in tar files of 4,000", "shards-tiny", "plain", _SHARDS[:4], rounds=3
    ),
    Condition(
        "shards-many-late",
        "the first batch of 1,000 tar files with a saved index, 30 ms to the first byte",
        "shards-many",
        "late",
        (Run("penstock_first_batch"), Run("penstock_resumed_batch")),
    ),
    Condition("mds", "samples of 30 to 110 KB in MDS files of 32 MiB", "shards", "plain", _MDS, rounds=3),
    Condition("mds-late", "the same, 30 ms to the first byte", "shards", "late", _MDS, rounds=3),
    Condition("parquet", "rows of 30 to 110 KB in Parquet files of 2,500", "parquet", "plain", _PARQUET, rounds=3),
    Condition("parquet-late", "the same, 30 ms to the first byte", "parquet", "late", _PARQUET, rounds=3),
    Condition(
        "mixture",
        "the samples of the tar files and their objects as two sources",
        "shards",
        "plain",
        _MIXTURE,
        rounds=15,
    ),
    Condition("pairs", "samples of two objects, 100 KiB and 1 KiB", "pairs", "plain", _PAIRS, rounds=3),
    Condition("pairs-late", "the same, 30 ms to the first byte", "pairs", "late", _PAIRS, rounds=3),
    Condition("tokens", "windows of 2,048 tokens of 2 bytes in files of 128 MiB", "tokens", "plain", _TOKENS, rounds=3),
    Condition("tokens-late", "the same, 30 ms to the first byte", "tokens", "late", _TOKENS_LATE, rounds=3),
    Condition("large-load", "a state of 4 GiB loaded", "large", "plain", (*_LOAD[:2], _AMAZON_LOAD), rounds=2),
    Condition("large-load-tls", "a state of 4 GiB loaded, over TLS", "large", "tls", _LOAD[:2], rounds=2),
    Condition("large-save", "a state of 4 GiB saved", "large", "plain", _SAVE[:2], writes=True, rounds=2),
    Condition("large-save-tls", "a state of 4 GiB saved, over TLS", "large", "tls", _SAVE[:2], writes=True, rounds=2),
)


def quick(loads: tuple[Load, ...]) -> tuple[Load, ...]:
    """Return loads that take no time, to see that everything still runs; their numbers mean nothing."""
    return tuple(
        # Fields are read three times by each engine, and decoded.
        replace(load, size=min(load.size, 32 << 20), count=min(load.count, 128 if load.fields[0] else 512))
        for load in loads
    )
