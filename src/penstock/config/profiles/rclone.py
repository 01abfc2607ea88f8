"""Remotes of ``rclone.conf`` as profiles of Multi-Storage Client, which takes them as its own."""

from __future__ import annotations

import configparser
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["rclone_file", "rclone_profiles"]

_S3 = {"access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "session_token"}
# rclone's types, and those of Multi-Storage Client, which it takes there too.
_TYPES = {
    **{each: each for each in ("s3", "s8k", "gcs_s3", "azure", "gcs", "oci", "ais", "file")},
    "azureblob": "azure",
    "google cloud storage": "gcs",
    "oracleobjectstorage": "oci",
}
_OPTIONS = {
    "region": "region_name",
    "endpoint": "endpoint_url",
    "base_path": "base_path",
    "profile_name": "profile_name",
    "namespace": "namespace",
}
_CREDENTIALS = {
    **dict.fromkeys(("s3", "s8k", "gcs_s3"), ("S3Credentials", _S3)),
    **dict.fromkeys(("azure", "azureblob"), ("AzureCredentials", {"connection": "connection"})),
}


def rclone_file(environ: Mapping[str, str]) -> str:
    """Return the path of ``rclone.conf``; empty where there is none.

    It lies beside the program, in ``$XDG_CONFIG_HOME/rclone``, in ``/etc``, in ``~/.config/rclone``, or it is
    ``~/.rclone.conf``: the order of Multi-Storage Client.
    """
    program = shutil.which("rclone", path=environ.get("PATH"))
    home, xdg = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    paths = [Path(program).with_name("rclone.conf")] if program else []
    paths += [Path(xdg, "rclone", "rclone.conf")] if xdg else []
    paths += [Path("/etc/rclone.conf")]
    paths += [Path(home, ".config", "rclone", "rclone.conf"), Path(home, ".rclone.conf")] if home else []
    return next((str(path) for path in paths if path.is_file()), "")


def rclone_profiles(path: str) -> dict[str, dict[str, object]]:
    """Return the remotes of a file as Multi-Storage Client's profiles; other kinds than its own are left out.

    Raises:
        ConfigError: It cannot be read or parsed.

    """
    parser = configparser.RawConfigParser(interpolation=None)
    fault = ""
    try:
        with Path(path).open(encoding="utf-8") as stream:
            parser.read_file(stream)
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except (configparser.Error, UnicodeDecodeError) as error:
        fault = f"cannot be parsed: {type(error).__name__}"
    if fault:
        raise ConfigError(f"rclone's file {path} {fault}")
    return {name: _profile(parser[name]) for name in parser.sections() if parser[name].get("type") in _TYPES}


def _profile(section: Mapping[str, str]) -> dict[str, object]:
    kind = section["type"]
    options = {ours: section[theirs] for theirs, ours in _OPTIONS.items() if theirs in section}
    if kind == "ais" and "endpoint_url" in options:
        options["endpoint"] = options.pop("endpoint_url")
    profile: dict[str, object] = {"storage_provider": {"type": _TYPES[kind], "options": options}}
    name, keys = _CREDENTIALS.get(kind, ("", {}))
    if credentials := {ours: section[theirs] for theirs, ours in keys.items() if theirs in section}:
        profile["credentials_provider"] = {"type": name, "options": credentials}
    return profile
