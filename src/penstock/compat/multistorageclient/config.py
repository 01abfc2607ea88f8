"""Profiles of Multi-Storage Client, from its configuration files by name, or from a dictionary."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.compat.arguments import refuse_name
from penstock.compat.multistorageclient.types import CODE, MSC_PROTOCOL
from penstock.errors import ConfigError, Unsupported
from penstock.stores.profiles.effective import place_of
from penstock.stores.profiles.files import content_of, msc_candidates, yaml_of
from penstock.stores.profiles.multistorage import implicit, translate_profile, translations
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.options import StoreOptions
    from penstock.stores.profiles.files import ProfileTable

FILESYSTEM = "__filesystem__"


@dataclass(frozen=True, slots=True)
class StorageClientConfig:
    """Profile. If ``from_file`` finds it through the environment, it is pickled by name and read again on load.

    ``base`` is the URL of its paths; ``store`` is None if the URL's profile has the options.
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
        """Return a profile from the first existing file; default: the files where Multi-Storage Client looks."""
        _no_telemetry(telemetry_provider)
        named = list(config_file_paths or ())
        path = _first(named)
        if path is None and named and implicit(profile) is None:
            raise ConfigError(f"no profile {profile!r}: none of config_file_paths exists: {', '.join(named)}")
        found = {} if path is None else translations(path)
        if not named or (profile not in found and implicit(profile) is not None):
            # Raises if the profile does not exist.
            parse(f"{MSC_PROTOCOL}{profile}/bucket/key")
            return StorageClientConfig(profile, f"{MSC_PROTOCOL}{profile}/")
        if profile not in found:
            raise ConfigError(f"{path} has no profile {profile!r}; profiles: {', '.join(found) or 'none'}")
        return _of(profile, found[profile]())

    @staticmethod
    def from_dict(
        config_dict: Mapping[str, Any],
        profile: str = FILESYSTEM,
        skip_validation: bool = False,
        telemetry_provider: Callable[[], Any] | None = None,
    ) -> StorageClientConfig:
        """Return a profile from the dictionary of a configuration file; nothing is written to a file."""
        _no_telemetry(telemetry_provider)
        profiles = config_dict.get("profiles") or {}
        if profile not in profiles:
            if implicit(profile) is not None:
                return StorageClientConfig.from_file(profile=profile)
            raise ConfigError(f"config_dict has no profile {profile!r}; profiles: {', '.join(profiles) or 'none'}")
        return _of(profile, translate_profile(profile, profiles[profile], "config_dict", config_dict))

    @staticmethod
    def from_json(
        config_json: str, profile: str = FILESYSTEM, telemetry_provider: Callable[[], Any] | None = None
    ) -> StorageClientConfig:
        """Return a profile from JSON text. Raise the errors of ``from_dict``, and ``ValueError`` for invalid JSON."""
        return StorageClientConfig.from_dict(json.loads(config_json), profile, telemetry_provider=telemetry_provider)

    @staticmethod
    def from_yaml(
        config_yaml: str, profile: str = FILESYSTEM, telemetry_provider: Callable[[], Any] | None = None
    ) -> StorageClientConfig:
        """Return a profile from YAML text. Raise the errors of ``from_dict``, and ``MissingExtra`` without PyYAML."""
        content: Any = yaml_of(config_yaml, "config_yaml") or {}
        return StorageClientConfig.from_dict(content, profile, telemetry_provider=telemetry_provider)

    @staticmethod
    def from_provider_bundle(*_args: object, **_options: object) -> NoReturn:
        raise Unsupported(
            "StorageClientConfig.from_provider_bundle is not a part of penstock.compat.multistorageclient: name a "
            "profile with a storage_provider, or add a provider to Penstock (penstock.providers)"
        )

    @staticmethod
    def read_msc_config(config_file_paths: Iterable[str] | None = None) -> tuple[dict[str, Any], str | None]:
        """Return the first file's content and path; ({}, None) without a file. Raise the errors of ``from_file``."""
        path = _first(list(config_file_paths or ()) or msc_candidates(os.environ))
        return ({}, None) if path is None else (deepcopy(dict(content_of(path))), path)


def _of(profile: str, table: ProfileTable) -> StorageClientConfig:
    return StorageClientConfig(profile, *place_of(table))


def _first(paths: Iterable[str]) -> str | None:
    return next((each for each in paths if Path(each).is_file()), None)


def _no_telemetry(provider: object) -> None:
    if provider is not None:
        raise Unsupported(
            "telemetry_provider is not honoured: open the sink "
            "penstock.observe.OpenTelemetry(namespace='multistorageclient')"
        )


_ABSENT = {
    **dict.fromkeys(("ImmutableDict", "SimpleProviderBundle", "SimpleProviderBundleV2"), CODE),
    **dict.fromkeys(
        ("StorageClientConfigLoader", "create_implicit_profile_config"),
        "use StorageClientConfig.from_file, from_dict or from_yaml",
    ),
    "PathMapping": "write path_mapping into the configuration file",
}


def __getattr__(name: str) -> NoReturn:
    refuse_name(__name__, name, _ABSENT)
