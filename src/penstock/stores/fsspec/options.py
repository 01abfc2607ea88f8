"""Options of filesystems that fsspec opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.options.parts import StoreOptions
from penstock.options.private import HiddenMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class FsspecOptions(StoreOptions):
    """Arguments for a filesystem that fsspec opens (``fsspec+X://``). None of the transport options applies.

    Attributes:
        storage_options: Arguments of the filesystem's class, as other libraries pass them to fsspec; all count as
            secrets.
        transport: HTTP options; not used.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine.

    Example:
        >>> with ps.open("fsspec+memory://folder/notes.txt", "w", store=ps.FsspecOptions()) as file:
        ...     file.write("a")
        1
        >>> ps.open("fsspec+memory://folder/notes.txt").read()
        b'a'
    """

    storage_options: Mapping[str, object] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        options: object = self.storage_options
        if options is None:
            return
        if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
            raise ConfigError("storage_options must be a mapping of names to values: {'username': …}")
        object.__setattr__(self, "storage_options", HiddenMapping(options))
