"""The bars of the issues, met or missed, and why where they are missed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from benchmarks.conditions import DIALECTS
from benchmarks.rows import Row, Table, Values, number, ratio, spread
from benchmarks.sections import ORDERS

__all__ = ["BARS", "REASONS", "Bar", "cpu_by_floor", "first", "rate_by_theirs"]


Measure = Callable[[Row, Table], Values]


@dataclass(frozen=True)
class Bar:
    """A promise: ``measure(ours, table)`` is to be at most, or at least, ``limit``."""

    condition: str
    script: str
    words: str
    measure: Measure
    limit: float
    at_least: bool = False
    unit: str = "x"

    def line(self, table: Table) -> str:
        """Return the bar's line in the report; empty where it was not measured."""
        try:
            values = self.measure(table[self.script], table)
        except KeyError:
            return ""
        got = median(values)
        met = got >= self.limit if self.at_least else got <= self.limit
        verdict = "met" if met else f"**missed** by {abs(got / self.limit - 1):.0%}"
        bound = "≥" if self.at_least else "≤"
        wanted = f"{bound} {number(self.limit)} {self.unit}".strip()
        return f"| {self.condition}: {self.words} | {wanted} | {spread(values)} | {verdict} |"


_least = partial(Bar, at_least=True)


def _of(name: str) -> Measure:
    """Return the measure of one number of each round."""
    return lambda ours, _: ours[name]


def _cpu_by(script: str) -> Measure:
    return lambda ours, table: ratio(ours.cpu_us, table[script].cpu_us)


def _rate_by(script: str) -> Measure:
    return lambda ours, table: ratio(ours.rate, table[script].rate)


def _requests_by(script: str) -> Measure:
    return lambda ours, table: ratio(ours["requests"], table[script]["requests"])


def _time_by(script: str) -> Measure:
    return lambda ours, table: ratio(ours.seconds, table[script].seconds)


cpu_by_floor = _cpu_by("floor")


def _cpu_by_theirs(ours: Row, table: Table) -> Values:
    return ratio(ours.cpu_us, table[ours.beside].cpu_us)


def rate_by_theirs(ours: Row, table: Table) -> Values:
    return ratio(ours.rate, table[ours.beside].rate)


def first(table: Table, engine: str) -> Row:
    """Return an engine's row where it has only one; KeyError where it has none."""
    scripts = [script for script in table if script.partition("_")[0] == engine]
    return table[scripts[0] if scripts else engine]


def _speed_by_obstore(ours: Row, table: Table) -> Values:
    return ratio(first(table, "obstore").seconds, ours.seconds)


def _shards(condition: str) -> list[Bar]:
    """Samples in tar files: blocks beside peers without and with a local disk, and single ranges beside objects."""
    blocks, single = "penstock_shards", "penstock_full_shards"

    def beside(*others: str) -> Measure:
        return lambda ours, table: [
            rate / max(each) for rate, *each in zip(ours.rate, *(table[other].rate for other in others), strict=True)
        ]

    without_disk = beside("webdataset_shards", "s3torchconnector_shards")
    return [
        _least(condition, blocks, "samples/s beside the best peer without a local disk", without_disk, 4),
        _least(condition, blocks, "samples/s beside LitData", beside("litdata_shards"), 2.5),
        _least(condition, blocks, "samples/s beside energon", beside("energon_shards"), 4),
        Bar(condition, blocks, "CPU per sample beside raw sockets'", _cpu_by("floor_shards"), 2.2),
        Bar(condition, blocks, "first batch, s", _of("first_s"), 0.25, unit="s"),
        _wire(condition, blocks),
        Bar(condition, blocks, "peak RSS", lambda ours, _: ours.peak_mib, 668, unit="MiB"),
        _least(condition, single, "samples/s beside the same bytes as objects", rate_by_theirs, 0.95),
        Bar(condition, single, "CPU per sample beside the same", _cpu_by_theirs, 1.1),
    ]


def _mds(condition: str) -> list[Bar]:
    """Samples in MDS files: beside Mosaic's reader, which copies them to a local disk first."""
    script = "penstock_mds"
    return [
        _least(condition, script, "samples/s beside Mosaic's streaming", rate_by_theirs, 4),
        _wire(condition, script),
    ]


def _wire(condition: str, script: str) -> Bar:
    def measure(ours: Row, _: Table) -> Values:
        return [each / whole for each, whole in zip(ours["wire_bytes"], ours["bytes"], strict=True)]

    return Bar(condition, script, "bytes read beside those of the samples", measure, 1.03)


def _rows(condition: str) -> list[Bar]:
    """Rows of Parquet files: beside pyarrow on a local file in the same order, and beside datasets in another."""
    mixed, theirs = "penstock_rows", "datasets_rows"
    bars = [
        _least(condition, mixed, "rows/s beside datasets' streaming", rate_by_theirs, 5),
        Bar(
            condition,
            mixed,
            "peak RSS beside datasets'",
            lambda ours, table: ratio(ours.peak_mib, table[theirs].peak_mib),
            1 / 3,
        ),
        _wire(condition, mixed),
    ]
    if not condition.endswith("-late"):
        words = "rows/s in order beside pyarrow's of a local file"
        bars.append(_least(condition, "penstock_rows_in_order", words, rate_by_theirs, 0.9))
        words = "CPU per row beside raw sockets' and pyarrow's"
        bars.append(Bar(condition, mixed, words, _cpu_by("floor_rows"), 1.2))
    return bars


def _tokens(condition: str) -> list[Bar]:
    """Windows of tokens in lanes beside raw sockets that cut and mix nothing, and beside raw sockets that do."""
    named = {"penstock_tokens": "rate of int64 windows", "penstock_stored_tokens": "rate of windows of the stored type"}
    rates = [
        _least(condition, script, f"{what} beside raw sockets'", rate_by_theirs, 0.9) for script, what in named.items()
    ]

    words = "rate of int64 windows beside raw sockets' that mix and convert them"
    mixed = _least(condition, "penstock_tokens", words, _rate_by("floor_mixed_tokens"), 0.9)
    packed = "penstock_packed_tokens"
    return [
        *rates,
        mixed,
        _wire(condition, "penstock_tokens"),
        _least(condition, packed, "rate of packed documents beside windows'", rate_by_theirs, 0.95),
        Bar(condition, packed, "requests beside those of windows", _requests_by("penstock_tokens"), 1.01),
        Bar(condition, packed, "% of padding", lambda ours, _: [100 * each for each in ours["padding"]], 0.5, unit="%"),
    ]


def _paired(condition: str) -> Bar:
    words = "time beside that of both objects read singly"
    return Bar(
        condition, "penstock_pairs", words, lambda ours, table: ratio(ours.seconds, table[ours.beside].seconds), 1.05
    )


def _pair(condition: str, what: str, measure: Measure, limit: float, *, at_least: bool) -> list[Bar]:
    return [
        Bar(condition, f"penstock_{kind}", f"{what}, {kind}", measure, limit, at_least) for kind in ("map", "iterable")
    ]


def _unknown(condition: str, busy: str) -> list[Bar]:
    """Objects of unknown size beside those whose size was listed."""
    scripts = {kind: f"penstock_unknown_{kind}" for kind in ("map", "iterable")}
    words = "beside objects of known size"
    return [
        *(
            Bar(condition, script, f"CPU per object {words}, {kind}", _cpu_by_theirs, 1.25)
            for kind, script in scripts.items()
        ),
        _least(busy, scripts["iterable"], "share of time computed", _used, 95, unit="%"),
        _least(busy, scripts["iterable"], f"objects/s {words}", rate_by_theirs, 0.9),
    ]


def _dialects(condition: str) -> list[Bar]:
    """Other stores' dialects beside S3's."""
    return [
        Bar(condition, f"penstock_{way}", f"CPU per object beside S3's, {way.replace('_', ' ')}", _cpu_by_theirs, 1.1)
        for way in DIALECTS
    ]


def _tables(condition: str) -> list[Bar]:
    script = "penstock_read_table"
    return [
        _least(condition, script, "speed beside s3fs", rate_by_theirs, 1.5),
        _least(condition, script, "speed beside pyarrow's own S3", _rate_by("pyarrow_read_table"), 1),
    ]


def _written(condition: str) -> list[Bar]:
    speed = "speed beside obstore's multipart put"
    return [
        _least(condition, "penstock_write", speed, _speed_by_obstore, 0.7),
        Bar(condition, "penstock_write", "peak RSS beyond the data", lambda ours, _: ours.beyond_mib, 128, unit="MiB"),
    ]


def _decoded(condition: str) -> list[Bar]:
    words = "images/s beside the same threads decoding from the RAM disk"
    return [
        _least(condition, "penstock_decode", words, rate_by_theirs, 0.92),
        _least(condition, "penstock_train", "share of time computed", _used, 95, unit="%"),
    ]


def _used(ours: Row, _: Table) -> Values:
    return ours.used


def _saved(condition: str, scripts: tuple[str, ...]) -> list[Bar]:
    speed = "speed beside obstore's multipart put of as many bytes"
    bars = [_least(condition, script, f"{_told(script)}, {speed}", _speed_by_obstore, 0.9) for script in scripts]
    return [*bars, *(_lean(condition, script) for script in scripts)]


def _loaded(condition: str, scripts: tuple[str, ...]) -> list[Bar]:
    bars = [
        Bar(condition, script, f"{_told(script)}, time beside raw sockets'", _time_by("floor_big"), 1.3)
        for script in scripts
    ]
    return [*bars, *(_lean(condition, script) for script in scripts)]


def _lean(condition: str, script: str) -> Bar:
    words = f"{_told(script)}, peak RSS beyond the state"
    return Bar(condition, script, words, lambda ours, _: ours.grown_mib, 256, unit="MiB")


def _faster(condition: str, script: str, whose: str, limit: float) -> Bar:
    return _least(condition, script, f"{_told(script)}, speed beside {whose}", rate_by_theirs, limit)


def _behind(script: str, whose: str) -> Bar:
    words = f"what {whose} steps lose to a background save, of what waiting for one costs"
    return Bar("state-async", script, words, _of("lost_percent"), 10, unit="%")


def _told(script: str) -> str:
    return script.partition("_")[2].replace("_", " ")


def _listed(row: str, limit: float) -> Bar:
    words = f"keys/s by {row}'s" if row != "plain" else "keys/s by a listing page by page"
    return _least("listing", "penstock", words, lambda ours, table: ratio(table[row]["wall_s"], ours["wall_s"]), limit)


def _cached(row: str, key: str, words: str, limit: float) -> Bar:
    def measure(ours: Row, table: Table) -> Values:
        theirs = table[row]
        return ratio(ours[key], theirs[key]) if key == "objects_a_second" else ratio(theirs[key], ours[key])

    return _least("cache", "cached", words, measure, limit)


def _hedged() -> tuple[Bar, ...]:
    def faster(ours: Row, table: Table) -> Values:
        return ratio(table["without"]["p99_s"], ours["p99_s"])

    return (
        _least("hedge", "hedged", "p99 without second requests by p99 with them", faster, 10),
        Bar("hedge", "hedged", "more requests", _of("more_percent"), 2, unit="%"),
        Bar("hedge", "idle", "what they cost where none is needed", _of("idle_percent"), 0.5, unit="%"),
    )


def _ordered(row: str, words: str, key: str, limit: float, unit: str) -> Bar:
    return Bar("order", row, f"{row}, {words}", _of(key), limit, unit=unit)


_SAVES = ("penstock_save", "penstock_manager_save")
_LOADS = ("penstock_load", "penstock_manager_load")
_WINDOWS = "penstock_windows_epochs"  # mixes as many chunks at a time as the peers do; the default mixes more
# By condition: how many times as fast as windows of chunks read by zarr over obstore, and as insitubatch.
_EPOCHS = {
    "fields-1": (1.5, 1.7),
    "fields-4": (1.5, 1.5),
    "fields-32": (1.2, 1.0),
    "fields-shards": (1.5, None),  # not compared with insitubatch
    "fields-4-late": (2.2, 1.8),
}


def _epochs(condition: str, theirs: str, words: str, limit: float) -> Bar:
    return _least(condition, _WINDOWS, words, _rate_by(theirs), limit)


def _trained(condition: str, windows: float, theirs: float | None) -> list[Bar]:
    """Return the bars of epochs over fields: of its rate, and of its CPU beside decoding and raw sockets alone."""
    bars = [
        _epochs(condition, "obstore_windows_epochs", "samples/s beside windows of chunks by zarr and obstore", windows)
    ]
    if theirs is not None:
        bars.append(_epochs(condition, "insitubatch_epochs", "samples/s beside insitubatch's", theirs))

    if theirs is not None and theirs > 1:
        bars.append(
            Bar(condition, _WINDOWS, "CPU per sample beside insitubatch's", _cpu_by("insitubatch_epochs"), 0.75)
        )
        bars.append(Bar(condition, _WINDOWS, "first batch beside insitubatch's", _sooner, 0.9))
    if not condition.endswith("-late"):
        words = "CPU per sample beside raw sockets and decoding"
        both = ((_WINDOWS, ""), ("penstock_epochs", ", default window"))
        bars += [Bar(condition, row, f"{words}{more}", _cpu_by("floor_epochs"), 1.1) for row, more in both]
    return bars


def _sooner(ours: Row, table: Table) -> Values:
    return ratio(ours["first_s"], table["insitubatch_epochs"]["first_s"])


BARS = (
    *_pair("small", "CPU per object beside the floor's", cpu_by_floor, 2.5, at_least=False),
    *_pair("small", "CPU per object beside s3torchconnector's", _cpu_by_theirs, 0.25, at_least=False),
    *_pair("small", "objects/s beside s3torchconnector's", rate_by_theirs, 6, at_least=True),
    *_pair("tiny", "objects/s beside s3torchconnector's", rate_by_theirs, 8, at_least=True),
    _least("late", "penstock_iterable", "objects/s, iterable", lambda ours, _: ours.rate, 5000, unit=""),
    _least("late", "penstock_iterable", "objects/s beside s3torchconnector's", rate_by_theirs, 100),
    _least(
        "late",
        "penstock_map",
        "objects/s of map in batches of 256 beside iterable's",
        _rate_by("penstock_iterable"),
        0.6,
    ),
    _least("late-busy", "penstock_iterable", "share of time computed", _used, 90, unit="%"),
    *_unknown("unknown", "unknown-busy"),
    *_dialects("dialects"),
    _least("ranges", "penstock_cat_ranges", "ranges/s beside s3fs's", rate_by_theirs, 5),
    *_tables("table"),
    Bar("big", "penstock_open", "time beside raw sockets'", _time_by("floor_big"), 1.5),
    Bar("big", "penstock_open", "peak RSS beyond the object", lambda ours, _: ours.beyond_mib, 64, unit="MiB"),
    Bar("big-tls", "penstock_open", "time beside obstore's", _time_by("obstore_get"), 0.6),
    *_written("write"),
    *_written("write-tls"),
    *_decoded("decode"),
    *_decoded("decode-late"),
    *_saved("state-save", _SAVES),
    *(_lean("state-save", script) for script in ("penstock_safetensors_save", "penstock_dcp_save")),
    *_saved("state-save-tls", _SAVES),
    *_saved("large-save", _SAVES[:1]),
    *_saved("large-save-tls", _SAVES[:1]),
    _faster("state-load", "penstock_load", "S3Checkpoint.reader's", 4),
    *_loaded("state-load", _LOADS),
    *_loaded("state-load-tls", _LOADS),
    _faster("large-load", "penstock_load", "S3Checkpoint.reader's", 4),
    *_loaded("large-load", _LOADS[:1]),
    *_loaded("large-load-tls", _LOADS[:1]),
    _faster("state-safetensors", "penstock_safetensors_load", "runai-model-streamer's", 1.2),
    _lean("state-safetensors", "penstock_safetensors_load"),
    _faster("state-safetensors-tls", "penstock_safetensors_load", "runai-model-streamer's", 1.2),
    _lean("state-safetensors-tls", "penstock_safetensors_load"),
    _faster("state-ranks", "penstock_dcp_load", "s3torchconnector's", 3),
    _lean("state-ranks", "penstock_dcp_load"),
    _behind("penstock_async_save", "an accelerator's"),
    _behind("penstock_async_save_cpu", "a core's"),
    _faster("zarr", "penstock_zarr", "obstore's under zarr", 1.1),
    _faster("zarr-late", "penstock_zarr", "obstore's under zarr", 1.1),
    _least(
        "zarr",
        "s3fs_zarr",
        "array read over Penstock beside s3fs",
        lambda ours, table: ratio(table["penstock_zarr"].rate, ours.rate),
        3,
    ),
    Bar("zarr-get", "penstock_zarr_get", "CPU per get beside obstore's", _cpu_by_theirs, 0.55),
    *(bar for name, (windows, theirs) in _EPOCHS.items() for bar in _trained(name, windows, theirs)),
    _epochs("fields-4", "obstore_map_epochs", "samples/s beside a map-style data set's in workers", 4),
    _epochs("fields-4-late", "obstore_map_epochs", "samples/s beside a map-style data set's in workers", 13),
    Bar(
        "fields-4-late",
        "penstock_epochs",
        "seconds to the first batch, metadata included",
        _of("first_s"),
        0.5,
        unit="s",
    ),
    _least("fields-4", "penstock_statistics", "fields/s beside an epoch's", rate_by_theirs, 0.9),
    *_shards("shards"),
    *_shards("shards-late"),
    Bar("shards-tiny", "penstock_shards", "CPU per sample", lambda ours, _: ours.cpu_us, 20, unit="µs"),
    *_mds("mds"),
    *_mds("mds-late"),
    *_rows("parquet"),
    *_rows("parquet-late"),
    *(
        Bar("shards-many-late", f"penstock_{each}_batch", f"{each} batch", _of("first_s"), 0.5, unit="s")
        for each in ("first", "resumed")
    ),
    Bar("index", "headers", "% of the bytes", _of("percent"), 2, unit="%"),
    *_tokens("tokens"),
    *_tokens("tokens-late"),
    *(
        _least("mixture", mixed, "samples/s beside one source", rate_by_theirs, 0.97)
        for mixed in ("penstock_mixture", "penstock_mixed_shards")
    ),
    _paired("pairs"),
    _paired("pairs-late"),
    *_hedged(),
    *(_ordered(row, "time per sample", "sample_us", 2, "µs") for row in ORDERS),
    *(_ordered(row, "first batch after 90,000,000", "first_s", 1, "s") for row in ORDERS if row.startswith("100,")),
    *(_listed(*each) for each in (("plain", 12), ("s3torchconnector", 12), ("dataflux", 1))),
    _cached("files", "objects_a_second", "objects/s of a cached epoch by a dataset of local files", 0.9),
    _cached("files", "cpu_us", "the same by CPU", 0.9),
    Bar(
        "events",
        "penstock_scraped",
        "CPU of metrics, scraped once a second, beside all of map's at 20,000 objects a second",
        lambda ours, table: [
            share * 100 / 20_000 * 1e6
            for share in ratio(ratio(ours.cpu_s, ours["scrapes"]), table["penstock_map"].cpu_us)
        ],
        1,
        unit="%",
    ),
    Bar(
        "events",
        "penstock_asked",
        "CPU of asking whether anyone listens beside all of map's",
        lambda ours, table: [share * 100 for share in ratio(ours.cpu_us, table["penstock_map"].cpu_us)],
        1,
        unit="%",
    ),
)


# By condition: said where one of its bars is missed.
REASONS = {
    "small": "two threads share two cores and their caches with the server; what is left is Python per object on both.",
    "tiny": (
        "of 39 µs of CPU per object (map) some 19 are Python on the I/O thread (signing 3, loading and unloading a "
        "handle 5, the bookkeeping of a read 6); signing on the caller's thread is next, or libcurl driven by its "
        "socket callbacks."
    ),
    "late-busy": (
        "in full swing a step leaves 91 % to the training; the first batches, while connections are opened, cost some "
        "two points of a run of 40 steps. What is left is the I/O thread's Python, 30 µs per object."
    ),
    "unknown-busy": "objects of known size leave no more: see late-busy.",
    "fields-1": "at the bar: 1.07 in an earlier run.",
    "fields-4": "at the bars: eight more rounds had 1.49 (1.42 - 1.77) of the rate, and 1.06 of the floor's CPU.",
    "shards": (
        "in blocks, whole runs of this table had 3.6 to 4.0, whichever of the two peers is ahead. In a full "
        "permutation, 0.79 to 1.03 of the rate and 1.02 to 1.2 of the CPU: finding the two members of a range takes "
        "some 5 µs more than an object does where it is made (design 0110), of 70."
    ),
    "tokens": (
        "raw sockets that mix and convert reach some 0.6 of those that only read, so that 0.9 of these is out of "
        "reach. All cores are busy: of some 7 µs of CPU per window (raw sockets: 1.6; with mixing and int64: 2.7), 2.8 "
        "are the I/O thread's, three quarters of them the kernel's: copying, and the first touch of the memory of two "
        "windows of blocks. The copy of each window into its batch, as int64, takes 1 to 2, order and schedule 1.5. "
        "Memory of runs that is used again was measured and refused (design 0092), as were more threads (design 0120). "
        "Packed documents take some 2.3 times the CPU of windows: two int64 arrays in place of one, and a copy of each "
        "piece into its row."
    ),
    "tokens-late": "see tokens.",
    "big-tls": (
        "rounds spread threefold, and the best was 0.3: server, client and TLS on both sides are four loads on two "
        "cores. An earlier run of the same read path, on a quieter machine, had 0.42 (0.40 - 0.68)."
    ),
    "write": "beside what obstore does too, SHA-256 and sending, each byte is copied into a part: 0.15 s per GiB.",
    "write-tls": "beside what obstore does too, SHA-256 and sending, each byte is copied into a part: 0.15 s per GiB.",
    **dict.fromkeys(
        ("state-save", "state-save-tls", "large-save", "large-save-tls"),
        "both cores are busy all the time, so CPU decides: 1.4 s per GiB, 1.6 of a manager's step, beside obstore's "
        "1.3, SHA-256 in all of them; copying into parts is 0.13 of it, the zip's sums 0.09, the seal of a step 0.1.",
    ),
    **dict.fromkeys(
        ("state-load", "large-load"),
        "raw sockets, which compare nothing, are themselves but 4.1 times as fast as S3Checkpoint.reader here.",
    ),
    "state-ranks": (
        "four ranks fill tensors that are there sooner than one process of raw sockets fills fresh memory with as many "
        "bytes: no more comes through this server and two cores. Where fresh memory is dear (no touching it first), "
        "s3torchconnector's 4.2 GiB cost it more, and it was 5.6 times."
    ),
    "state-async": (
        "copying CPU memory aside is 0.12 s per GiB by itself, at the memory's speed, 9 % of the waiting (a GPU's goes "
        "over PCIe); beside steps that compute on one of two cores, the save's three threads and the server have the "
        "other."
    ),
    "parquet": (
        "raw sockets and pyarrow, which mix and compare nothing, take 75 µs of CPU a row, and pyarrow by itself 24 to "
        "55 on a local file: what arrives needs fresh memory, and the server has the other core."
    ),
    "decode": "two decoding threads, the I/O thread and the server share two cores.",
    "decode-late": "two decoding threads, the I/O thread and the server share two cores.",
}
