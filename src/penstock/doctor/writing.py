"""Writing steps: one PUT, conditions, an upload in parts, a copy, and deleting all of it again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.doctor.findings import Finding, step
from penstock.errors import AlreadyExists, NotFound, PreconditionFailed, Unsupported
from penstock.protocols.driver import Attributes, Delete, Multipart, Payload, Put
from penstock.support import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Exchange
    from penstock.source import Source

__all__ = ["body", "clear", "deleting", "writing"]

_BODY = 256 << 10
_REFUSED = b"this must not be written"
_LAST_WINS = "of several writers the last one wins, and Penstock can only look before it writes (docs/stores.md)"


def body() -> bytes:
    """Return 256 KiB, of which each 16 bytes tell where they stand."""
    return b"".join(b"penstock" + at.to_bytes(8, "big") for at in range(_BODY // 16))


def writing(source: Source, stem: str) -> Iterator[Finding]:
    """Write into keys that begin with ``stem``: an object, on conditions, in parts of ``part_bytes``, and a copy."""
    key = f"{stem}object"
    with step("write") as written:
        source.require(Put, key)
        etag = source.put(key, body())
        written.detail = f"{_BODY:,} bytes, version {etag or 'unknown'} [{source.url(key)}]"
    yield written
    if written.outcome != "passed":
        return
    for name, refused in (("write only what is new", Attributes(create_only=True)), ("replace a version", _gone(etag))):
        with step(name) as conditional:
            _expect_refusal(conditional, source, key, refused)
        yield conditional
    with step("write in parts") as parted:
        _write_parts(parted, source, f"{stem}parts")
    yield parted
    with step("copy") as copied:
        source.copy(key, f"{stem}copy")
        found = source.head(f"{stem}copy")
        copied.detail = f"{found.size:,} bytes, by the store itself"
        if found.size != _BODY:
            copied.fail(f"the copy has {found.size:,} bytes, the object {_BODY:,}")
    yield copied


def deleting(source: Source, stem: str) -> Finding:
    """Delete what was written, and see that it is gone."""
    key = f"{stem}object"
    with step("delete") as finding:
        clear(source, stem)
        try:
            source.head(key)
        except NotFound:
            finding.detail = "nothing is left behind"
        else:
            finding.fail(f"it is still there: {source.url(key)}")
    return finding


def clear(source: Source, stem: str) -> None:
    """Delete all that the steps may have written, and free unfinished uploads; missing ones are fine.

    Raises what the store refuses.
    """
    if source.supports(Delete):
        source.delete([f"{stem}{name}" for name in ("object", "parts", "copy")])
    if source.supports(Multipart):
        with suppress(Unsupported):  # some stores do not list uploads
            for upload in source.unfinished(stem):
                source.abort(upload)


def _gone(etag: str) -> Attributes:
    return Attributes(replaces=(etag[:-1] + ("1" if etag[-1:] != "1" else "2")) if etag else "")


def _expect_refusal(finding: Finding, source: Source, key: str, attributes: Attributes) -> None:
    """Write over the object on a condition that does not hold, without a look beforehand: only the store can refuse."""
    if not (attributes.create_only or attributes.replaces):
        finding.skip("the store names no versions")
        return

    def overwrite(driver: Driver) -> Exchange[str]:
        begin = driver.abilities.digest
        digest = begin() if begin else None
        if digest:
            digest.update(_REFUSED)
        payload = Payload(_REFUSED, digest.hexdigest() if digest else "")
        return require(driver, Put, key).put(key, payload, attributes)

    try:
        source.ask(overwrite)
    except (AlreadyExists, PreconditionFailed):
        finding.detail = "the store refuses what must not be written over"
    except (Unsupported, NotFound):
        finding.warn(f"the store has no such condition: {_LAST_WINS}")
    else:
        finding.warn(f"the store ignores the condition: {_LAST_WINS}")
        source.put(key, body())


def _write_parts(finding: Finding, source: Source, key: str) -> None:
    size = source.options.write.part_bytes + 1024
    pattern = body()
    data = memoryview(pattern * (size // len(pattern) + 1))[:size]
    source.require(Multipart, key)
    with source.open_write(key) as file:
        file.write(data)
    found = source.head(key)
    finding.detail = f"{size:,} bytes in two parts"
    if found.size != size:
        finding.fail(f"the object has {found.size:,} bytes, {size:,} were written in two parts")
