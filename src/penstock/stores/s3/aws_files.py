"""Settings of one profile in the shared AWS files (``~/.aws/config`` and ``~/.aws/credentials``)."""

from __future__ import annotations

import configparser
import os
import shlex
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.stores.http.network import first, variables

if TYPE_CHECKING:
    from collections.abc import Mapping

_Sections = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Settings of a profile; None for those it does not have. The repr shows no key.

    Attributes:
        name: None if no profile was named: the default profile, which need not exist.
        endpoint: ``endpoint_url`` of its ``services`` section's ``s3``, else its own.
        ignore_endpoints: ``ignore_configured_endpoint_urls`` is true.
        addressing: ``addressing_style`` of its ``s3`` block, as written.
        forms: Forms of AWS's own endpoint that it selects: ``dual_stack`` (``use_dualstack_endpoint``), ``fips``
            (``use_fips_endpoint``), ``accelerate`` (``use_accelerate_endpoint`` of its ``s3`` block).
        access_key: Static key id; from the credentials file, if both files have one; so secret and session token.
        digest: Changes with any setting of the profile in either file.
    """

    name: str | None = None
    region: str | None = None
    endpoint: str | None = None
    ignore_endpoints: bool = False
    ca_bundle: str | None = None
    addressing: str | None = None
    forms: tuple[str, ...] = ()
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    digest: bytes = field(default=b"", repr=False, compare=False)


def files(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the paths of the config file and of the credentials file; neither file needs to exist."""
    config = environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    credentials = environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    # Not pathlib's expanduser: it raises RuntimeError if no home directory is known.
    return Path(os.path.expanduser(config)), Path(os.path.expanduser(credentials))  # noqa: PTH111


def profile(name: str | None, environ: Mapping[str, str]) -> Profile:
    """Read the profile ``name``, else the one ``AWS_PROFILE`` (or ``AWS_DEFAULT_PROFILE``) names, else the default.

    A missing file counts as empty, and so does a missing default profile. Errors name files and lines, never contents.
    """
    by, name = first([("profile=", name or None), *variables(environ, "AWS_PROFILE", "AWS_DEFAULT_PROFILE")])
    config_file, credentials_file = files(environ)
    config, credentials = _read_sections(config_file), _read_sections(credentials_file)
    plain = _select_sections(config, "profile").get(name or "default")
    secret = credentials.get(name or "default")
    if name and plain is None and secret is None:
        raise ConfigError(f"profile {name!r} (of {by}) is neither in {config_file} nor in {credentials_file}")
    return _profile(name, plain or {}, secret or {}, _select_sections(config, "services"))


def _profile(name: str | None, config: dict[str, str], credentials: dict[str, str], services: _Sections) -> Profile:
    merged = config | credentials
    nested = _parse_block(merged.get("s3", ""))
    forms = {
        "dual_stack": merged.get("use_dualstack_endpoint", ""),
        "fips": merged.get("use_fips_endpoint", ""),
        "accelerate": nested.get("use_accelerate_endpoint", ""),
    }
    keys = credentials if "aws_access_key_id" in credentials else config
    return Profile(
        name=name,
        region=merged.get("region") or None,
        endpoint=_service_endpoint(merged.get("services"), services) or merged.get("endpoint_url") or None,
        ignore_endpoints=merged.get("ignore_configured_endpoint_urls", "").lower() == "true",
        ca_bundle=merged.get("ca_bundle") or None,
        addressing=nested.get("addressing_style") or None,
        forms=tuple(name for name, said in forms.items() if said.lower() == "true"),
        access_key=keys.get("aws_access_key_id") or None,
        secret_key=keys.get("aws_secret_access_key") or None,
        token=keys.get("aws_session_token") or None,
        digest=sha256(repr((sorted(config.items()), sorted(credentials.items()))).encode()).digest(),
    )


def _service_endpoint(section: str | None, services: _Sections) -> str | None:
    if not section:
        return None
    if section not in services:
        raise ConfigError(f"a profile uses [services {section}], which the config file does not have")
    return _parse_block(services[section].get("s3", "")).get("endpoint_url")


def _select_sections(sections: _Sections, title: str) -> _Sections:
    """Return the sections ``[title name]`` by name; a plain ``[default]`` stands for ``[profile default]``."""
    found = {"default": sections["default"]} if "default" in sections else {}
    for heading, values in sections.items():
        try:
            words = shlex.split(heading)
        except ValueError:
            # An unpaired quote: not a heading that is used here.
            continue
        if words[:-1] == [title]:
            found[words[-1]] = values
    return found


def _parse_block(block: str) -> dict[str, str]:
    """Read an indented block of ``name = value`` lines, which configparser returns as one long value."""
    pairs = (line.partition("=") for line in block.splitlines())
    return {name.strip().lower(): value.strip() for name, mark, value in pairs if mark}


def _read_sections(path: Path) -> _Sections:
    parser, fault = configparser.RawConfigParser(), ""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            parser.read_file(stream)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = "is not UTF-8 text"
    except configparser.Error as error:
        lines = [getattr(error, "lineno", None)] + [number for number, _ in getattr(error, "errors", ())]
        fault = f"cannot be parsed: {type(error).__name__} in line {next(filter(None, lines), 'unknown')}"
    # Raised outside the except block: the parser's error, which quotes the line, must not be chained.
    if fault:
        raise ConfigError(f"the AWS file {path} {fault}")
    return {section: dict(parser[section]) for section in parser.sections()}
