"""Archives for tests, and a walk through bytes in memory."""

import io
import tarfile
import zipfile
from struct import pack


def tar(members, form=tarfile.PAX_FORMAT):
    """Return a tar file of ``(name, bytes)``, or of ``TarInfo`` without bytes."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for each in members:
            if isinstance(each, tarfile.TarInfo):
                archive.addfile(each)
                continue
            name, data = each
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


class Stream(io.RawIOBase):
    """A file that cannot seek, to which a zip file is written with its sizes behind each member."""

    def __init__(self):
        """Begin with nothing."""
        self.data = bytearray()

    def writable(self):
        """Return True."""
        return True

    def write(self, data):
        """Append bytes."""
        self.data += data
        return len(data)


def zipped(members, method=zipfile.ZIP_STORED, *, streamed=False, wide=False, comment=b""):
    """Return a zip file of ``(name, bytes)``, or of ``(ZipInfo, bytes)``; ``wide``: zip64."""
    file = Stream() if streamed else io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            if info is not name:
                info.compress_type = method
            with archive.open(info, "w", force_zip64=wide) as member:
                member.write(data)
        archive.comment = comment
    return bytes(file.data if streamed else file.getvalue())


def masked(data):
    """Return the masked CRC-32C, bit by bit: independent of the library that the format uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _bit in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(payload, *, checked=True):
    """Return one TFRecord; without ``checked`` the sum of its payload is wrong."""
    length = pack("<Q", len(payload))
    return length + pack("<I", masked(length)) + payload + pack("<I", masked(payload) if checked else 0)


def tfrecord(payloads, **options):
    """Return a TFRecord file of payloads."""
    return b"".join(record(each, **options) for each in payloads)


def walked(form, data):
    """Return the extents that ``form`` finds in ``data``, and the ranges that it asked for."""
    walk, asks = form.walk(len(data)), []
    try:
        ask = next(walk)
        while True:
            assert 0 <= ask.start < ask.stop <= len(data)
            assert all(ask.stop <= each.start or each.stop <= ask.start for each in asks[-100:])
            asks.append(ask)
            ask = walk.send(memoryview(data)[ask.start : ask.stop])
    except StopIteration as end:
        return end.value, asks


def samples(form, data):
    """Return the samples of ``data`` as pairs of key and fields, each read by its extent."""
    found, _ = walked(form, data)
    places = zip(found.offsets.tolist(), found.sizes.tolist(), strict=True)
    return [plain(form.sample(memoryview(data)[start : start + size])) for start, size in places]


def plain(sample):
    """Return a sample with bytes in place of views."""
    if isinstance(sample, memoryview):
        return bytes(sample)
    values = sample.values.items()
    return sample.key, {name: bytes(each) if isinstance(each, memoryview) else each for name, each in values}
