"""A saved index opens the clips of the videos themselves without a request for each, and no other videos."""

import io
import json
import multiprocessing
import pickle
import random
import struct
from contextlib import suppress
from hashlib import sha256

import av
import numpy as np
import pytest
import torch

import penstock as ps
from penstock.data.catalog.discovery import scan
from penstock.data.catalog.discovery.shards import find_shards
from penstock.data.video import frames as frames_file
from penstock.data.video.audio import _read_pcm, find_packets
from penstock.data.video.audio_boxes import PCM_KINDS
from penstock.data.video.frames import AudioFormat, VideoFormat, open_videos
from penstock.data.video.saved import _AUDIO_TYPES, _tables_agree, open_indexed
from penstock.errors import (
    AlreadyExists,
    Changed,
    ChecksumMismatch,
    Damaged,
    NotFound,
    PenstockError,
    Unsupported,
    Unusable,
)
from tests.data.datasets.ranks import ranks
from tests.data.video.files import FILMS, KINDS, SOUNDS, encode, film_of, kind, record, sound, written
from tests.data.video.moov import file


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    for number, name in enumerate(KINDS):
        (folder / f"{number:02}.mp4").write_bytes(kind(name))
    # Of a camera: PCM.
    (folder / f"{len(KINDS)}.mov").write_bytes(dubbed("pcm_s24le, mov"))
    return folder


def dubbed(name, form="mov"):
    """Return a file of 60 frames with the sound of a kind."""
    sound_file = record("mp3", "mp4", "fltp") if name == "mp3" else sound(name)
    video, audio = av.open(io.BytesIO(kind("h264, moov in front"))), av.open(io.BytesIO(sound_file))
    with video, audio, written(form, {}) as (out, found):
        sources = [video.streams.video[0], audio.streams.audio[0]]
        for source, stream in [(each, out.add_stream_from_template(each)) for each in sources]:
            for packet in source.container.demux(source):
                if packet.dts is not None:
                    packet.stream = stream
                    out.mux(packet)
    return found[0]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.mp4").write_bytes(kind(("h264, moov in front", "av1, g=2")[number % 2]))
    return folder


@pytest.fixture
def index(tmp_path):
    return tmp_path / "videos.index"


def made(folder, index, **options):
    return ps.index(f"{folder}/", index, format="mp4", **options)


def opened(folder, index=None, **options):
    return ps.VideoDataset.from_shards(f"{folder}/", **{"frames": 4, "index": index, **options})


def alike(one, other):
    return (one.key, one.seconds.tolist()) == (other.key, other.seconds.tolist()) and torch.equal(
        one.frames, other.frames
    )


def test_clips_of_every_kind_are_those_of_a_dataset_without_an_index(every_kind, index):
    counts = made(every_kind, index)
    for options in ({"frames": 3, "every": 3}, {"frames": 5, "fps": 10, "labels": r"(\d)\d\.m"}):
        plain, indexed = opened(every_kind, **options), opened(every_kind, index, **options)
        assert indexed.contents.digest == plain.contents.digest
        assert repr(indexed) == repr(plain)
        assert indexed.classes == plain.classes
        assert all(
            alike(one, other) and one.data == other.data and one.label == other.label
            for one, other in zip(plain, indexed, strict=True)
        )
    videos = plain.windows.videos
    assert counts == {"files": len(KINDS) + 1, "frames": videos.counts.sum(), "frame_bytes": videos.frame_bytes}


@pytest.mark.parametrize("shuffle", [True, ps.order.Lanes(block_bytes=6000, window_blocks=3)])
def test_state_goes_on_from_a_dataset_with_an_index_to_one_without_and_back(folder, index, shuffle):
    made(folder, index)
    for first, second in ((None, index), (index, None)):
        loader, expected = (ps.DataLoader(opened(folder, first), 4, shuffle=shuffle, collate_fn=list) for _ in "ab")
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        resumed = ps.DataLoader(opened(folder, second), 4, shuffle=shuffle, collate_fn=list)
        resumed.load_state_dict(loader.state_dict())
        for one, other in zip(resumed, [*expected][3:], strict=True):
            assert all(map(alike, one, other))


def test_workers_and_a_pickle_have_the_tables_of_the_index(folder, index):
    made(folder, index)
    dataset = opened(folder, index, transform=frames_of)
    other = pickle.loads(pickle.dumps(dataset))
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(
            dataset, 8, num_workers=1, multiprocessing_context=multiprocessing.get_context(context)
        )
        assert torch.equal(torch.cat([*loader]), torch.stack([*other]))


def frames_of(clip):
    return clip.frames


class Requests:
    """Numbers of requests to a bucket of the fault server."""

    def __init__(self, server, bucket):
        self.server, self.bucket = server, bucket
        self.server.make(bucket)

    def put(self, name, body):
        self.server.put(self.bucket, f"videos/{name}.mp4", body)

    def made(self, work):
        """Return what ``work`` returns, and how many listings, HEADs and GETs it takes."""
        before = [len(self.server.seen(verb, self.bucket)) for verb in ("list", "head", "get")]
        found = work()
        after = [len(self.server.seen(verb, self.bucket)) for verb in ("list", "head", "get")]
        return found, [stop - start for start, stop in zip(before, after, strict=True)]

    def index(self):
        return ps.index(f"s3://{self.bucket}/videos/", self.name, format="mp4", store=self.server.store)

    def open(self, *, indexed=True, urls=None):
        urls = urls or f"s3://{self.bucket}/videos/"
        index = self.name if indexed else None
        return ps.VideoDataset.from_shards(urls, frames=4, index=index, store=self.server.store)

    @property
    def name(self):
        return f"s3://{self.bucket}/videos.index"


@pytest.fixture
def bucket(s3_faults, request):
    found = Requests(s3_faults, f"saved{abs(hash(request.node.name))}")
    for number in range(40):
        found.put(f"{number:02}", kind("h264, moov in front"))
    return found


def test_opening_takes_a_listing_and_the_read_of_the_index_alone(bucket):
    counts, made = bucket.made(bucket.index)
    assert counts == {"files": 40, "frames": 2400, "frame_bytes": counts["frame_bytes"]}
    assert made[2] == 40
    plain, without = bucket.made(lambda: bucket.open(indexed=False))
    dataset, made = bucket.made(bucket.open)
    assert without == [without[0], 0, 40]
    assert made == [without[0], 1, 1]
    assert dataset.contents.digest == plain.contents.digest
    # Named files take a HEAD each, in any order.
    urls = [f"s3://{bucket.bucket}/videos/{number:02}.mp4" for number in (7, 39, 0)]
    dataset, made = bucket.made(lambda: bucket.open(urls=urls))
    assert made == [0, 4, 1]
    assert dataset.contents.digest == bucket.open(indexed=False, urls=urls).contents.digest


def test_many_videos_are_listed_without_advice_to_save_a_catalog(bucket, caplog, monkeypatch):
    monkeypatch.setattr(scan, "_MANY_KEYS", 3)
    bucket.open(indexed=False)
    assert not caplog.messages
    ps.Catalog.scan(f"s3://{bucket.bucket}/videos/", store=bucket.server.store)
    assert "save the catalog once" in caplog.text


def test_new_and_replaced_videos_are_read_with_a_line_in_the_log_and_lost_ones_left_out(bucket, caplog):
    bucket.index()
    bucket.open()
    assert not caplog.messages
    bucket.put("07", kind("av1, g=2"))
    bucket.put("99", kind("vp9"))
    ps.delete(f"s3://{bucket.bucket}/videos/00.mp4", store=bucket.server.store)
    dataset, made = bucket.made(bucket.open)
    assert made[1:] == [1, 1 + 2]
    [message] = caplog.messages
    assert message.startswith(f"2 of 40 files are read now, since the index {bucket.name} does not have them: ")
    assert "videos/07.mp4 was replaced; index the files again, by ps.index(" in message
    plain = bucket.open(indexed=False)
    assert dataset.contents.digest == plain.contents.digest
    assert all(map(alike, dataset, plain))
    # Repeated, only they are read, and nothing is left to say.
    caplog.clear()
    counts, made = bucket.made(bucket.index)
    assert counts["files"] == 40
    # The head of the old index, the index, and the two videos.
    assert made[2] == 1 + 1 + 2
    dataset, made = bucket.made(bucket.open)
    assert made[1:] == [1, 1]
    assert not caplog.messages
    assert dataset.contents.digest == plain.contents.digest
    bucket.put("07", kind("vp9"))
    with pytest.raises(Changed):
        list(dataset)


def _open_indexed(bucket, store):
    index = f"s3://{bucket}/videos.index"
    dataset = ps.VideoDataset.from_shards(f"s3://{bucket}/videos/", frames=4, index=index, store=store)
    return dataset.contents.digest


def test_first_rank_of_a_group_reads_new_videos_for_all_and_each_reads_the_index(bucket, tmp_path):
    bucket.index()
    bucket.put("99", kind("vp9"))
    digest = bucket.open().contents.digest
    group = f"file://{tmp_path / 'group'}"
    found, made = bucket.made(lambda: ranks(2, group, _open_indexed, bucket.bucket, bucket.server.store))
    assert found == [digest] * 2
    assert made == [1, 2, 2 + 1]


def test_index_of_other_videos_is_refused(folder, index, tmp_path):
    made(folder, index)
    for number in range(4):
        # The same bytes in another version.
        (folder / f"{number}.mp4").write_bytes((folder / f"{number}.mp4").read_bytes())
    with pytest.raises(Changed, match=r"the index is of other files: .*/0\.mp4 was replaced; index the files again"):
        opened(folder, index)
    other = tmp_path / "other"
    folder.rename(other)
    with pytest.raises(Changed, match=r"other/0\.mp4 is new; index the files again, by ps\.index\(…, format='mp4'\)"):
        opened(other, index)


def test_index_of_another_track_is_refused(folder, index):
    (folder / "4.mp4").write_bytes(kind("two video tracks"))
    for number in range(4):
        (folder / f"{number}.mp4").unlink()
    made(folder, index, track=2)
    with pytest.raises(Unusable, match="the index is of track=2, not of track=None"):
        opened(folder, index)
    assert len(opened(folder, index, track=2)) == len(opened(folder, track=2))
    # It is written anew, for the other track.
    made(folder, index)
    assert alike(opened(folder, index)[0], opened(folder)[0])


def test_other_files_in_the_place_of_an_index_are_refused_by_name(folder, index, tmp_path):
    with pytest.raises(NotFound):
        opened(folder, index)
    (folder / "tokens.bin").write_bytes(bytes(4000))
    ps.index(f"{folder}/", catalog := tmp_path / "objects.catalog", include="*.mp4")
    (folder / "tokens.bin").unlink()
    with pytest.raises(Damaged, match="not an index of media files, but a catalog: index the files again"):
        opened(folder, catalog)
    with pytest.raises(Damaged, match="not an index of media files, but another file"):
        opened(folder, folder / "0.mp4")
    for mine in (catalog, folder / "0.mp4"):
        before = mine.read_bytes()
        with pytest.raises(AlreadyExists, match="cannot write the index of media files: the existing file is not one"):
            made(folder, mine)
        assert mine.read_bytes() == before
    made(folder, index)
    with pytest.raises(Damaged, match="not a catalog"):
        ps.Catalog.open(index)
    with pytest.raises(AlreadyExists, match="not a catalog"):
        ps.index(f"{folder}/", index)
    with pytest.raises(Damaged, match="not a plan of packed rows, but an index of media files: make it again"):
        ps.TokenDataset.from_shards(f"{folder}/", length=4, pack="best-fit", plan=index)
    with pytest.raises(PenstockError):
        opened(folder, ps.Catalog.open(catalog))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": "mp4"}, "fields= cannot be combined with format='mp4': one process reads and writes it all"),
        ({"key": "first-dot"}, "key= cannot"),
        ({"missing": "drop"}, "missing= cannot"),
        ({"skip": "*.txt"}, "skip= cannot"),
        ({"index": "energon"}, "index= cannot"),
        ({"labels": "folder"}, "labels= cannot"),
        ({"versions": True}, "versions= cannot"),
        ({"restart": True}, "restart= cannot"),
        ({"job": "records/"}, "job= cannot"),
        ({"part": "1/2"}, "part= cannot"),
        ({"processes": 4}, "processes= cannot"),
        ({"include": "*.mp4"}, "include= and exclude= are for objects"),
        ({"length": 5}, "length=, pack=, longer= and dtype= are for packed rows"),
        ({"track": 0}, "track must be 1 or more"),
        ({"format": None, "track": 1}, "track= is of videos and sound: pass format='mp4' or format='audio'"),
    ],
)
def test_wrong_arguments_of_an_index_are_refused(folder, index, options, message):
    with pytest.raises(Unusable, match=message):
        ps.index(f"{folder}/", index, **{"format": "mp4", **options})
    assert not index.exists()


def test_interrupted_index_leaves_the_one_before(folder, index, monkeypatch):
    made(folder, index)
    before = index.read_bytes()
    (folder / "4.mp4").write_bytes(kind("vp9"))
    (folder / "5.mp4").write_bytes(kind("vp9"))
    walks = frames_file.walked

    def interrupted(*given):
        yield next(walks(*given))
        raise KeyboardInterrupt

    monkeypatch.setattr(frames_file, "walked", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(folder, index)
    assert index.read_bytes() == before
    assert [each.name for each in index.parent.iterdir()] == ["videos", "videos.index"]


def test_large_index_is_held_once_by_the_processes_of_a_node(tmp_path, index):
    for number in range(200):
        (tmp_path / f"{number:03}.mp4").write_bytes(file([100] * 2000, keys=[*range(1, 2001, 2)], front=True))
    made(tmp_path, index)
    assert index.stat().st_size > 1 << 20
    first, second = (opened(tmp_path, index).windows.videos for _ in "ab")
    assert first.table(199).places.tolist() == second.table(199).places.tolist()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_sizes, (second,)) == _sizes(first)


def _sizes(videos):
    return [int(videos.table(number).sizes.sum()) for number in range(len(videos))]


def places_of(header):
    """Return the section, and the first byte and the end, of each vector."""
    places, at = [], 0
    for number, section in enumerate(header["sections"]):
        for dtype, count in section["vectors"]:
            places.append((number, at, at + count * np.dtype(dtype).itemsize))
            at += -(-(places[-1][2] - at) // 64) * 64
    return places


def forge(index, whole, change):
    """Write an index with other vectors or another header, whose digests are right."""
    magic, size, _ = struct.unpack_from("<16sQ32s", whole)
    header = json.loads(whole[56 : 56 + size])
    body = bytearray(whole[56 + size :])
    stop = min(first for number, first, _ in places_of(header) if number)
    body = change(header, body) or body
    for section, part in zip(header["sections"], (body[:stop], body[stop:]), strict=True):
        section["sha256"] = sha256(part).hexdigest()
    text = json.dumps(header).encode()
    index.write_bytes(struct.pack("<16sQ32s", magic, len(text), sha256(text).digest()) + text + body)


def test_damaged_and_forged_indexes_are_refused(folder, index):
    made(folder, index)
    whole = index.read_bytes()
    for at in (60, 64 + int.from_bytes(whole[16:24], "little")):
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ChecksumMismatch):
            opened(folder, index)
    for end in (0, 10, 50, 100, len(whole) - 8):
        index.write_bytes(whole[:end])
        with pytest.raises(Damaged):
            opened(folder, index)

    def forged(change):
        forge(index, whole, change)
        return opened(folder, index)

    assert len(forged(lambda *_: None)) == len(opened(folder))
    with pytest.raises(Unusable, match="the index of media files has version 2, known is 1: index the files again"):
        forged(lambda header, _: header.update(version=2))
    with pytest.raises(Damaged, match="its header describes"):
        forged(lambda _, body: body + bytes(64))
    with pytest.raises(Damaged, match="names"):
        forged(lambda header, _: header.update(names=4))
    with pytest.raises(Damaged, match="different numbers of names"):
        forged(lambda header, _: header.update(names=header["names"][1:]))
    with pytest.raises(Damaged, match="contradict one another"):
        forged(lambda header, _: header["sections"][0]["vectors"][0].__setitem__(0, "<u8"))
    # Sizes are compared with the files.
    with pytest.raises(Changed, match="other files"):
        forged(lambda header, _: header.update(sizes=[1 << 40] * 4))
    # Names lead nowhere: they are only compared with those of the listing.
    with pytest.raises(Changed, match="other files"):
        forged(lambda header, _: header.update(names=[f"../{each}" for each in header["names"]]))


# Of a table, in the order of the file, and of its vectors.
NUMBERS = ("setup", "scale", "first", "step", "begin", "frames", "reach", "last")
VECTORS = ("sizes", "keys", "key_ranks", "shifts", "times", "marks", "places")


class Forgery:
    """The vectors of a section, to be written to: a number or a value of a vector, by the number of the file."""

    def __init__(self, header, body, number):
        places = [(first, stop) for section, first, stop in places_of(header) if section == number]
        described = header["sections"][number]["vectors"]
        self.vectors = [
            np.frombuffer(body, dtype, count, first)
            for (dtype, count), (first, _) in zip(described, places, strict=True)
        ]
        self.rows = self.vectors[0].reshape(-1, len(NUMBERS))
        self.setups, self.boxes = self.vectors[1:3]

    def of(self, name, file):
        at = 3 + VECTORS.index(name)
        first, stop = self.vectors[at][file : file + 2]
        return self.vectors[at + len(VECTORS)][first:stop]

    def write(self, name, *change):
        """Write a number of a table: ``file, value``; a value of a vector, or of the borders: ``file, at, value``."""
        if name in NUMBERS:
            self.rows[change[0], NUMBERS.index(name)] = change[1]
        elif name in VECTORS:
            self.of(name, change[0])[change[1]] = change[2]
        elif name == "border":
            self.vectors[3 + change[0]][change[1]] = change[2]
        elif name == "setup border":
            self.setups[change[0]] = change[1]
        else:
            file, at, text = change
            first = self.setups[file] + at
            self.boxes[first : first + len(text)] = [*text.encode()]

    def hide_a_sample(self):
        """Let the key frame be one that is decoded after a frame that is presented later."""
        shifts = self.of("shifts", 0)
        samples = np.arange(len(shifts)) + shifts
        key = next(at for at in range(len(samples)) if (samples[at:] < samples[at]).any())
        for change in (("keys", 0, 0, samples[key]), ("key_ranks", 0, 0, key), ("begin", 0, key)):
            self.write(*change)
        self.write("frames", 0, len(samples) - key)


# The first has B-frames; the second also times; the third has neither; the last has stretches with sound in between.
LIED_ABOUT = ("h264, one group", "variable rate", "av1, g=2", "sound after")
LIES = (
    *(("setup", 0, -1), ("setup", 3, 99), ("scale", 1, 0), ("scale", 1, 1 << 40), ("first", 0, -1 << 60)),
    *(("first", 0, 1 << 60), ("step", 2, -1), ("step", 2, 1 << 40), ("step", 2, 0), ("step", 1, 20)),
    *(("begin", 2, -1), ("begin", 2, 60), ("frames", 2, 0), ("frames", 2, 61), ("reach", 0, 60), ("reach", 0, 0)),
    *(("last", 0, -1), ("last", 0, 1 << 40), ("keys", 2, 1, 0), ("keys", 2, 0, 1), ("keys", 2, -1, 60)),
    *(
        ("sizes", 0, 0, 1 << 31),
        ("key_ranks", 0, 0, 1),
        ("key_ranks", 1, 1, 13),
        ("key_ranks", 0, 0, 60),
        ("shifts", 0, 1, 0),
    ),
    *(("shifts", 0, 0, -1), ("shifts", 0, -1, 1), ("times", 1, 0, 5), ("times", 1, 2, 1 << 31), ("marks", 3, 0, 1)),
    *(("marks", 3, 1, 0), ("marks", 3, -1, 60), ("places", 3, 0, -1), ("places", 3, 1, 0), ("places", 3, -1, 1 << 40)),
    *(("border", 0, 0, 1), ("border", 0, -1, 1 << 40), ("border", 0, 1, 1 << 40), ("setup border", 1, 0)),
    *(("boxes", 0, 4, "soun"), ("hide_a_sample",)),
)
AUDIO_LIES = (
    *(("frames", 0, 1), ("begin", 0, 1), ("scale", 0, 48_000), ("scale", 1, 0), ("frames", 1, -1), ("step", 1, 0)),
    *(
        ("frames", 1, 1 << 60),
        ("frames", 1, 1 << 20),
        ("first", 2, 1 << 20),
        ("reach", 1, 1),
        ("setup", 0, 1),
        ("setup", 1, 0),
        ("sizes", 2, 0, 5),
    ),
    *(("marks", 1, 0, 1), ("places", 1, 0, -1), ("places", 1, -1, 1 << 40), ("boxes", 1, 9, "abc")),
)


@pytest.mark.parametrize("lie", LIES, ids=repr)
def test_each_lie_about_frames_is_found(tmp_path, index, lie):
    for number, name in enumerate(LIED_ABOUT):
        (tmp_path / f"{number}.mp4").write_bytes(kind(name))
    made(tmp_path, index)
    tell(index, 0, lie)
    with pytest.raises(Damaged, match="the tables of the index contradict one another"):
        opened(tmp_path, index)


@pytest.mark.parametrize("lie", AUDIO_LIES, ids=repr)
def test_each_lie_about_audio_is_found(tmp_path, index, lie):
    for number, body in enumerate((kind("vp9"), kind("sound after"), dubbed("pcm_s24le, mov"))):
        (tmp_path / f"{number}.mov").write_bytes(body)
    made(tmp_path, index)
    tell(index, 1, lie)
    assert len(opened(tmp_path, index)) == 45
    with pytest.raises(Damaged, match="the tables of the index contradict one another"):
        opened(tmp_path, index, audio=True)


def tell(index, section, lie):
    def change(header, body):
        tables = Forgery(header, body, section)
        tables.hide_a_sample() if lie == ("hide_a_sample",) else tables.write(*lie)

    forge(index, index.read_bytes(), change)


def check_table(table, size):
    """Follow all that the arithmetic of a table leads to."""
    samples = np.arange(len(table.sizes))
    if not table.setup.channels and table.setup.codec:
        every = np.arange(table.frames)
        firsts, stops = table.needs(every)
        assert (firsts >= 0).all()
        assert (firsts < stops).all()
        assert (stops <= len(samples)).all()
        table.nearest(table.seconds_of(every))
        table.ranks_of(0, len(samples))
    elif not len(samples):
        assert not table.frames
    else:
        begins = table.begin + np.linspace(0, table.frames, 20).astype(np.int64)
        firsts, stops = find_packets(table, begins, begins + 1000)
        assert (firsts >= 0).all()
        assert (stops <= len(samples)).all()
        assert len(list(read_packets(table, samples))) == len(samples)
    if len(samples):
        places, ends = table.places_of(0, len(samples))
        assert places.min() >= 0
        assert ends.max() <= size
        assert all(0 <= first <= stop <= size for first, stop in table.pieces(firsts, stops))


def read_packets(table, samples):
    """Yield the PCM frames of packets of zeros, where the codec needs no decoder."""
    for at in samples:
        size, codec = int(table.sizes[at]), table.setup.codec
        yield codec in PCM_KINDS and _read_pcm(memoryview(bytes(size)), codec).reshape(-1, table.setup.channels)


@pytest.mark.parametrize("audio", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_forged_vectors_are_refused_or_lead_to_no_byte_outside_of_the_file(every_kind, index, seed, audio):
    """Change bytes of the vectors, with digests that match: each result is an error, or tables within their files."""
    made(every_kind, index)
    whole, draw = index.read_bytes(), random.Random(seed)
    refused = 0
    for _ in range(150):

        def change(header, body):
            # Vectors of few bytes as often as those of many.
            places = [(first, stop) for number, first, stop in places_of(header) if first < stop and number == audio]
            for _ in range(draw.choice((1, 1, 3))):
                place = draw.randrange(*draw.choice(places))
                body[place] = draw.choice((0, 1, 127, 255, body[place] ^ 1 << draw.randrange(8)))

        forge(index, whole, change)
        try:
            videos = open_indexed(f"{every_kind}/", VideoFormat(audio=audio), index, None)
        except Damaged:
            refused += 1
            continue
        for number, size in enumerate(videos.sizes):
            with suppress(PenstockError):
                check_table(videos.table(number), size)
                if audio:
                    check_table(videos.audio.table(number), size)
    assert refused > 40


def test_audio_tables_of_an_index_are_those_of_the_files(every_kind, index):
    made(every_kind, index)
    form = VideoFormat(audio=True)
    plain, indexed = open_videos(find_shards(f"{every_kind}/", form, {}, None)), opened_videos(every_kind, index, form)
    (every_kind / "99.mp4").write_bytes(kind("sound after"))
    try:
        joined = opened_videos(every_kind, index, form)
        longer = open_videos(find_shards(f"{every_kind}/", form, {}, None))
    finally:
        (every_kind / "99.mp4").unlink()
    heard = opened(every_kind, audio=True), opened(every_kind, index, audio=True)
    assert heard[0].contents.digest == heard[1].contents.digest
    assert all(alike(one, other) and torch.equal(one.audio, other.audio) for one, other in zip(*heard, strict=True))
    codecs = set()
    for one, other in ((plain, indexed), (longer, joined)):
        for number in range(len(one)):
            mine, theirs = one.audio.table(number), other.audio.table(number)
            assert mine.setup == theirs.setup
            assert all(map(np.array_equal, mine[2:], theirs[2:]))
            assert one.table(number).setup == other.table(number).setup
            assert all(map(np.array_equal, one.table(number)[2:], other.table(number)[2:]))
            codecs.add(mine.setup.codec)
    assert codecs == {"", "aac", "<i3"}


def opened_videos(folder, index, form):
    return open_indexed(f"{folder}/", form, index, None)


def test_tables_of_every_kind_of_sound_agree(tmp_path):
    for number, name in enumerate(SOUNDS):
        form = "wav" if "wav" in name else "mp4"
        (tmp_path / f"{number}.{form}").write_bytes(sound(name))
    for number, name in enumerate(FILMS):
        (tmp_path / f"film{number}.mp4").write_bytes(film_of(name))
    videos = open_videos(find_shards(f"{tmp_path}/", AudioFormat(), {}, None))
    assert len(videos) == len(SOUNDS) + len(FILMS)
    assert _tables_agree([each.values for each in videos.vectors], _AUDIO_TYPES, np.array(videos.sizes))


def test_index_of_sound_files_opens_their_windows(tmp_path, index, caplog):
    for name in ("pcm_s24le, wav", "aac, ipod, mono, 16 kHz"):
        (tmp_path / f"{len(name)}.{name[-3:] if 'wav' in name else 'm4a'}").write_bytes(sound(name))
    (tmp_path / "film.mp4").write_bytes(film_of("interleaved"))
    counts = ps.index(f"{tmp_path}/", index, format="audio")

    def windows(**options):
        return ps.AudioDataset.from_shards(f"{tmp_path}/", seconds=0.25, **options)

    plain, indexed = windows(), windows(index=index)
    assert counts["files"] == 3
    assert counts["frames"] == plain.windows.videos.counts.sum()
    assert indexed.contents.digest == plain.contents.digest
    assert all(torch.equal(one.audio, other.audio) for one, other in zip(indexed, plain, strict=True))
    assert not caplog.messages
    (tmp_path / "film2.mp4").write_bytes(film_of("interleaved"))
    assert windows(index=index).contents.digest == windows().contents.digest
    assert "1 of 4 files are read now" in caplog.text
    # Each index is of the datasets of its format.
    with pytest.raises(Unusable, match="the index is of format='audio', not of format='mp4': index the files again"):
        opened(tmp_path, index)
    ps.index(f"{tmp_path}/", index, format="mp4")
    with pytest.raises(Unusable, match="the index is of format='mp4', not of format='audio'"):
        windows(index=index)


def test_audio_that_cannot_be_read_is_an_error_only_where_it_is_wanted(folder, index, caplog):
    (folder / "4.mp4").write_bytes(dubbed("mp3", "mp4"))
    made(folder, index)
    assert alike(opened(folder, index)[-1], opened(folder)[-1])
    with pytest.raises(Unsupported) as wanted:
        opened(folder, audio=True)
    with pytest.raises(Unsupported) as caught:
        opened(folder, index, audio=True)
    assert str(caught.value) == str(wanted.value)
    assert "videos/4.mp4 has audio that cannot be read" in caplog.text
    for number in range(4):
        (folder / f"{number}.mp4").unlink()
    with pytest.raises(Unsupported) as caught:
        opened(folder, index, audio=True)
    assert str(caught.value) == str(wanted.value)


def test_decoder_of_a_forged_setup_is_refused(folder, index):
    made(folder, index)
    whole = index.read_bytes()

    def change(_, body):
        at = body.index(b"stsd") + 4
        body[at : at + 40] = bytes(40)

    forge(index, whole, change)
    with pytest.raises(PenstockError):
        [each.frames for each in opened(folder, index)]


def test_videos_without_frames_to_index_are_an_error_and_write_nothing(tmp_path, index):
    with pytest.raises(NotFound):
        made(tmp_path, index)
    (tmp_path / "0.mp4").write_bytes(encode(count=3)[:-200])
    with pytest.raises(Damaged, match=r"0\.mp4"):
        made(tmp_path, index)
    assert not index.exists()
    with pytest.raises(Unusable, match="must be the URL of a file, got that of a folder"):
        made(tmp_path, f"{tmp_path}/")
