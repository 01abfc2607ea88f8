"""Profiles of Multi-Storage Client: by name from its files, or from a dictionary."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.compat.multistorageclient.types import MSC_PROTOCOL
from penstock.config.profiles.multistorage import candidates, translated, translations
from penstock.errors import ConfigError, MissingExtra, Unsupported
from penstock.providers.profiles.effective import place_of
from penstock.providers.urls import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.config.profiles.table import Table
    from penstock.options import StoreOptions

__all__ = ["FILESYSTEM", "StorageClientConfig"]

FILESYSTEM = "__filesystem__"


@dataclass(frozen=True, slots=True)
class StorageClientConfig:
    """One profile. One that ``from_file`` finds by the environment is pickled as its name, and read where it is loaded.

    Attributes:
        profile: Its name.
        base: URL below which its paths lie.
        store: Options; None where the URL's profile has them.

    """

    profile: str
    base: str
    store: StoreOptions | None = None

    @staticmethod
    def from_file(
        config_file_paths: Iterable[str] | None = None,
        profile: str = FILESYSTEM,
        telemetry_provider: Callable[[], Any] | None = None,
    ) -> StorageClientConfig:
        """Take a profile of the first of these files that is there; default: where Multi-Storage Client looks.

        Raises:
            ConfigError: There is no such profile, or Penstock cannot carry it out.
            MissingExtra: A YAML file, and no PyYAML.

        """
        _no_telemetry(telemetry_provider)
        path = None if config_file_paths is None else _first(config_file_paths)
        if path is None:
            parse(f"{MSC_PROTOCOL}{profile}/bucket/key")  # raises where there is no such profile
            return StorageClientConfig(profile, f"{MSC_PROTOCOL}{profile}/")
        found = translations(path)
        if profile not in found:
            raise ConfigError(f"{path} has no profile {profile!r}; there are {', '.join(found) or 'none'}")
        return _of(profile, found[profile]())

    @staticmethod
    def from_dict(
        config_dict: Mapping[str, Any],
        profile: str = FILESYSTEM,
        skip_validation: bool = False,
        telemetry_provider: Callable[[], Any] | None = None,
    ) -> StorageClientConfig:
        """Take a profile of a dictionary, as a configuration file holds it; nothing of it is written to a file.

        Raises:
            ConfigError: There is no such profile, or Penstock cannot carry it out.

        """
        _no_telemetry(telemetry_provider)
        profiles = config_dict.get("profiles") or {}
        if profile not in profiles:
            if profile == FILESYSTEM or profile.startswith("_"):
                return StorageClientConfig.from_file(profile=profile)
            raise ConfigError(f"config_dict has no profile {profile!r}; there are {', '.join(profiles) or 'none'}")
        return _of(profile, translated(profile, profiles[profile], "config_dict", config_dict))

    @staticmethod
    def from_json(
        config_json: str, profile: str = FILESYSTEM, telemetry_provider: Callable[[], Any] | None = None
    ) -> StorageClientConfig:
        """Take a profile of a text in JSON. Raises as ``from_dict``, and ``ValueError`` for other text."""
        return StorageClientConfig.from_dict(json.loads(config_json), profile, telemetry_provider=telemetry_provider)

    @staticmethod
    def from_yaml(
        config_yaml: str, profile: str = FILESYSTEM, telemetry_provider: Callable[[], Any] | None = None
    ) -> StorageClientConfig:
        """Take a profile of a text in YAML. Raises as ``from_dict``, and ``MissingExtra`` without PyYAML."""
        return StorageClientConfig.from_dict(_yaml(config_yaml), profile, telemetry_provider=telemetry_provider)

    @staticmethod
    def from_provider_bundle(*_args: object, **_options: object) -> NoReturn:
        """Raise ``Unsupported``: a bundle is run by Multi-Storage Client's own code."""
        raise Unsupported(
            "StorageClientConfig.from_provider_bundle is not a part of penstock.compat.multistorageclient: name a "
            "profile with a storage_provider, or add a provider to Penstock (penstock.providers)"
        )

    @staticmethod
    def read_msc_config(config_file_paths: Iterable[str] | None = None) -> tuple[dict[str, Any], str | None]:
        """Return the first file's content and its path; ({}, None) without a file."""
        path = _first(candidates(os.environ) if config_file_paths is None else config_file_paths)
        if path is None:
            return {}, None
        text = Path(path).read_text("utf-8")
        return (json.loads(text) if path.endswith(".json") else _yaml(text)), path


def _of(profile: str, table: Table) -> StorageClientConfig:
    return StorageClientConfig(profile, *place_of(table))


def _first(paths: Iterable[str]) -> str | None:
    return next((each for each in paths if Path(each).is_file()), None)


def _no_telemetry(provider: object) -> None:
    if provider is not None:
        raise Unsupported(
            "telemetry_provider is not honoured: open the sink "
            "penstock.observe.OpenTelemetry(namespace='multistorageclient')"
        )


def _yaml(text: str) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingExtra("a configuration in YAML needs PyYAML: pip install 'penstock[msc]'") from None
    return yaml.safe_load(text) or {}
