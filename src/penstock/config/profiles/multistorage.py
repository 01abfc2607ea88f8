"""Profiles of NVIDIA's Multi-Storage Client (1.3) as ours: its files, where it looks for them, and what they mean."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.profiles.files import Signature, signature
from penstock.config.profiles.rclone import rclone_file, rclone_profiles
from penstock.config.profiles.table import Table, Value, meant
from penstock.config.profiles.telemetry import telemetry
from penstock.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["candidates", "msc_files", "msc_mappings", "msc_names", "msc_tables", "translated", "translations"]

_FILESYSTEM = "__filesystem__"
# Type -> the scheme of its URLs here, and the service behind it where that is one of S3's.
_TYPES = {
    "s3": ("s3", ""),
    "s3_cuobject": ("s3", ""),
    "s8k": ("s3", "s8k"),
    "gcs_s3": ("s3", "gcs"),
    "ais_s3": ("s3", "ais"),
    "gcs": ("gs", ""),
    "azure": ("az", ""),
    "oci": ("oci", ""),
    "ais": ("ais", ""),
    "file": ("file", ""),
}
_IMPLICIT = {"s3": "s3", "gs": "gcs", "ais": "ais", "file": "file"}
_S3 = {
    "endpoint_url": "options.endpoint",
    "region_name": "options.region",
    "profile_name": "options.profile",
    "connect_timeout": "transport.connect_timeout_s",
    "read_timeout": "transport.stall_timeout_s",
    "max_pool_connections": "transport.connections",
}
# Option of a storage provider -> key of ours, by the scheme of ours.
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3": _S3,
    "gs": {"endpoint_url": "options.endpoint", "skip_signature": "options.anonymous"},
    "az": {"endpoint_url": "options.endpoint", "account_url": "options.endpoint"},
    "oci": {"namespace": "options.account"},
    "ais": {"endpoint": "options.endpoint"},
}
# Type of a credentials provider -> key of ours for each of its options.
_CREDENTIALS: Mapping[str, Mapping[str, str]] = {
    "S3Credentials": {
        "access_key": "options.access_key",
        "secret_key": "options.secret_key",
        "session_token": "options.session_token",
    },
    "AzureCredentials": {"connection": "options.connection_string"},
    "DefaultAzureCredentials": {},
    "GoogleServiceAccountCredentialsProvider": {"file": "options.credentials_file", "info": "options.credentials_json"},
    "FileBasedCredentials": {"credential_file_path": "options.credentials_process"},
}
_RETRY = {"attempts": "retry.attempts", "delay": "retry.base_s"}
_CACHE = {"size": "cache.size_bytes", "cache_line_size": "cache.block_bytes"}
_CACHE_CHECKS = ("check_source_version", "use_etag")  # the latter until 1.0
_CACHE_SIZE = "10G"  # its default
_QUIET = ("storage_provider", "credentials_provider", "retry", "comment", "caching_enabled")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_TOP = ("include", "profiles", "cache", "opentelemetry", "path_mapping", "posix", "experimental_features")
_SHARED = ("cache", "opentelemetry")  # one for all files


def candidates(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield where Multi-Storage Client looks for its file, in its order; the first that is there counts."""
    if named := environ.get("MSC_CONFIG"):
        yield str(Path(named).expanduser().absolute())
        return
    home, xdg = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    stems = [f"{xdg}/msc/config"] if xdg else []
    stems += [f"{home}/.msc_config", f"{home}/.config/msc/config"] if home else []
    stems += [
        f"{each}/msc/config" for each in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if each.strip()
    ]
    for stem in (*stems, "/etc/msc_config"):
        yield from (f"{stem}.yaml", f"{stem}.json")


def msc_files(environ: Mapping[str, str]) -> tuple[Signature, ...]:
    """Return the files that there are: its own, those that it includes, rclone's.

    Raises:
        ConfigError: ``MSC_CONFIG`` names no file, or a file cannot be read.
        MissingExtra: A YAML file, and no PyYAML.

    """
    found = next((each for each in map(signature, candidates(environ)) if each.inode), None)
    if found is None and environ.get("MSC_CONFIG"):
        raise ConfigError(f"MSC_CONFIG names {environ['MSC_CONFIG']!r}, which is no file: correct it, or unset it")
    included = () if found is None else tuple(signature(path) for path, _ in _parts(found.path)[1:])
    other = rclone_file(environ)
    return tuple(each for each in (found, *included, *([signature(other)] if other else [])) if each is not None)


def msc_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of all profiles; raises as ``msc_files`` does."""
    return list(_profiles(environ))


def msc_mappings(environ: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Return the file, source and target of each ``path_mapping``; raises as ``msc_files`` does."""
    found = next((each for each in map(signature, candidates(environ)) if each.inode), None)
    parts = _parts(found.path) if found is not None else []
    return tuple(
        (path, str(source), str(target))
        for path, content in parts
        for source, target in _mapping(content.get("path_mapping")).items()
    )


def msc_tables(name: str, environ: Mapping[str, str]) -> list[Table]:
    """Return a profile as a table of ours; Multi-Storage Client's do not extend one another.

    ``_s3-bucket`` (``gs``, ``ais``) and ``__filesystem__`` are there without a file.

    Raises:
        ConfigError: There is no such profile, or Penstock cannot carry it out.
        MissingExtra: As of ``msc_files``.

    """
    found = _profiles(environ)
    if name in found:
        table = translated(name, *found[name])
        if "path_mapping" in found[name][2] and not environ.get("MSC_CONFIG"):
            table = replace(table, notes=(*table.notes, "path_mapping (it counts where MSC_CONFIG names the file)"))
        return [table]
    protocol, mark, bucket = name.removeprefix("_").partition("-")
    if name == _FILESYSTEM:
        protocol, bucket = "file", "/"
    elif not (name.startswith("_") and mark and bucket and protocol in _IMPLICIT):
        near = meant(
            name,
            found,
            f"; there are {', '.join(found)}" if found else "; no file of its has any (MSC_CONFIG names another)",
        )
        raise ConfigError(f"Multi-Storage Client has no profile {name!r}{near}")
    content = {"storage_provider": {"type": _IMPLICIT[protocol], "options": {"base_path": bucket}}}
    return [translated(name, content, f"implicit profile {name}", {})]


def translations(path: str) -> dict[str, Callable[[], Table]]:
    """Return for each profile of one file, and of those that it includes, what translates it; to examine the file."""
    found = _profiles({"MSC_CONFIG": path})
    return {name: partial(translated, name, *each) for name, each in found.items()}


def translated(name: str, content: Mapping[str, Any], path: str, top: Mapping[str, Any]) -> Table:
    """Return a profile of Multi-Storage Client as one of ours; pure.

    What means nothing here is named in the table's ``notes``: misspelled keys too, which real files have.

    Raises:
        ConfigError: It is carried out by code of Multi-Storage Client, or its type is unknown.

    """
    origin = f"{path}: profiles.{name}"
    provider = content.get("storage_provider")
    if not isinstance(provider, Mapping):
        made = next((key for key in ("provider_bundle", "storage_provider_profiles") if key in content), "")
        why = f"{made} is run by Multi-Storage Client's own code" if made else "it has no storage_provider"
        raise ConfigError(f"{origin}: {why}: name a profile with a storage_provider")
    word = str(provider.get("type", ""))
    if word not in _TYPES:
        raise ConfigError(f"{origin}.storage_provider.type: no provider {word!r}{meant(word, _TYPES, _available())}")
    reading = _Reading(origin, str(Path(path).parent))
    scheme, service = _TYPES[word]
    reading.place(scheme, provider.get("options"))
    if service:
        reading.set("options.provider", service, "storage_provider.type")
    reading.options("storage_provider", _mapping(provider.get("options")), _OPTIONS.get(scheme, {}))
    reading.credentials(content.get("credentials_provider"))
    reading.table("retry", _mapping(content.get("retry")), _RETRY)
    if content.get("caching_enabled") is True:
        reading.cache(top.get("cache"))
    elif content.get("caching_enabled") is False:
        reading.set("cache.mode", "off", "caching_enabled")
    reading.notes += [key for key in content if key not in _QUIET]
    if "opentelemetry" in top:
        reading.telemetry(top["opentelemetry"])
    reading.notes += [key for key in top if key not in _TOP]
    return Table(name, origin, reading.values, tuple(reading.notes))


def _available() -> str:
    return f"; Penstock has {', '.join(_TYPES)}"


class _Reading:
    """A profile on its way."""

    def __init__(self, origin: str, folder: str) -> None:
        self._origin, self._folder = origin, folder
        self.values: dict[str, Value] = {}
        self.notes: list[str] = []

    def set(self, key: str, raw: object, where: str) -> None:
        self.values[key] = Value(_ours(raw), f"{self._origin}.{where}", self._folder)

    def place(self, scheme: str, options: object) -> None:
        base, where = str(_mapping(options).get("base_path") or ""), "storage_provider.options.base_path"
        base = re.sub(r"/{2,}", "/", base)
        if scheme == "file":
            self.set("url", f"file:///{base.lstrip('/')}", where)
        elif base.strip("/"):
            self.set("url", f"{scheme}://{base.strip('/')}/", where)
        else:  # the bucket stands in the URL
            self.set("provider", scheme, where)

    def options(self, table: str, given: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        for name, raw in given.items():
            where = f"{table}.options.{name}"
            if name == "base_path":
                continue
            if name == "verify" and "endpoint_url" in keys:
                self.set("transport.verify" if isinstance(raw, bool) else "transport.ca_file", raw, where)
            elif name == "skip_verify":
                self.set("transport.verify", not raw, where)
            elif name == "signature_version" and str(raw).upper() == "UNSIGNED":
                self.set("options.anonymous", True, where)  # noqa: FBT003  a value
            elif name == "s3" and isinstance(raw, Mapping):
                self.table(f"{table}.options.s3", raw, {"addressing_style": "options.addressing"})
            elif name in keys:
                self.set(keys[name], raw, where)
            else:
                self.notes.append(where)

    def credentials(self, given: object) -> None:
        if not given:
            return
        content = _mapping(given)
        keys = _CREDENTIALS.get(str(content.get("type", "")))
        if keys is None:
            self.notes.append(f"credentials_provider.type ({content.get('type')})")
            return
        self.values.pop("options.profile", None)  # as Multi-Storage Client has it
        for name, raw in _mapping(content.get("options")).items():
            where = f"credentials_provider.options.{name}"
            if name == "credential_file_path":  # read again before what it holds expires
                self.set(keys[name], ["cat", str(raw)], where)
            elif name in keys:
                self.set(keys[name], json.dumps(raw) if isinstance(raw, Mapping) else raw, where)
            else:
                self.notes.append(where)

    def cache(self, given: object) -> None:
        """Take the cache of the file; a directory of Penstock's own within its one: the two share no format."""
        if not isinstance(given, Mapping):  # Multi-Storage Client keeps nothing then
            self.notes.append("caching_enabled (there is no table cache)")
            return
        backend = _mapping(given.get("cache_backend")).get("cache_path")
        location = given.get("location") or backend
        if location:
            self.set("cache.path", f"{str(location).rstrip('/')}/penstock", "cache.location")
        checks = [given[each] for each in _CACHE_CHECKS if each in given]
        self.set("cache.mode", "immutable" if checks[:1] == [False] else "revalidate", "cache.check_source_version")
        own = {name: raw for name, raw in given.items() if name not in (*_CACHE_CHECKS, "location", "cache_backend")}
        self.table("cache", {"size": _CACHE_SIZE} | own, _CACHE)

    def telemetry(self, given: object) -> None:
        """Take the exporters of the file."""
        found, notes = telemetry(given)
        for key, raw in found.items():
            self.set(f"telemetry.{key}", raw, "opentelemetry")
        self.notes += notes

    def table(self, table: str, given: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        for name, raw in given.items():
            if name in keys:
                self.set(keys[name], raw, f"{table}.{name}")
            else:
                self.notes.append(f"{table}.{name}")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _ours(raw: object) -> object:
    """Return a value with its variables as ours are written: ``$NAME`` is ``${NAME}``."""
    if isinstance(raw, str):
        return _VARIABLE.sub(r"${\1}", raw)
    return [_ours(each) for each in raw] if isinstance(raw, list) else raw


def _profiles(environ: Mapping[str, str]) -> dict[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]]:
    """Return each profile with its file and that file's whole content."""
    found: dict[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]] = {}
    files = msc_files(environ)
    other = rclone_file(environ)
    parts = _parts(files[0].path) if files and files[0].path != other else []
    shared = {
        key: next(content[key] for _, content in parts if key in content)
        for key in _SHARED
        if any(key in content for _, content in parts)
    }
    for path, own in parts:
        content = {**own, **shared}
        for name, profile in _mapping(content.get("profiles")).items():
            if name in found and found[name][0] != profile:
                raise ConfigError(f"profile {name!r} is defined in {found[name][1]} and, in another way, in {path}")
            found.setdefault(name, (_mapping(profile), path, content))
    for name, profile in (rclone_profiles(other) if other else {}).items():
        found.setdefault(name, (profile, str(other), {}))
    return found


_parsed: dict[str, tuple[Signature, Mapping[str, Any]]] = {}


def _parts(path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a file and those that it includes, with what they hold; included ones include none."""
    content = _content(path)
    included = content.get("include")
    paths = [str(Path(path).parent / each) for each in (included if isinstance(included, list) else ())]
    return [(path, content), *((each, _content(each)) for each in paths)]


def _content(path: str) -> Mapping[str, Any]:
    now, held = signature(path), _parsed.get(path)
    if held is None or held[0] != now:
        held = _parsed[path] = now, _read(path)
    return held[1]


def _read(path: str) -> Mapping[str, Any]:
    fault, content = "", None
    try:
        text = Path(path).read_text("utf-8")
        content = json.loads(text) if path.endswith(".json") else _yaml(text, path)
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = "is not UTF-8 text"
    except (ValueError, RecursionError):
        fault = "is not JSON"
    if not fault and not isinstance(content, Mapping):
        fault = "is no mapping of keys" if content is not None else "is empty"
    if fault:
        raise ConfigError(f"the file of Multi-Storage Client, {path}, {fault}")
    return _mapping(content)


def _yaml(text: str, path: str) -> object:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingExtra(f"{path} is YAML, which needs PyYAML: pip install 'penstock[msc]'") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        fault = f"the file of Multi-Storage Client, {path}, is not YAML: an error{line}"
    raise ConfigError(fault)  # out here: the parser's error quotes the line
