"""Translation of the connector's arguments into Penstock's URLs and store options.

Names of the connector that Penstock does not implement: each raises ``Unsupported`` and names an alternative.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from penstock.compat.hints import WrongArgument
from penstock.engine.contracts.credentials import Credentials
from penstock.errors import ConfigError, InvalidURL, Unsupported
from penstock.stores.oss.options import OSSOptions

__all__ = ["TAR", "Access", "Connected", "OssClient", "generate_tar_archive", "new_data_object"]


@dataclass(frozen=True, slots=True)
class Access:
    """Arguments shared by all of the connector's classes. Without an endpoint, objects are local files.

    Attributes:
        endpoint: Base URL of the service; empty for local files.
        cred_path: Path of a JSON file with credentials.
        config_path: Accepted and ignored.
        cred_provider: An object whose ``get_credentials()`` returns credentials, as Alibaba's SDKs have them.
        region: The bucket's region; default: the region that the endpoint names.

    """

    endpoint: str
    cred_path: str | None = ""
    config_path: str | None = ""
    cred_provider: Any = None
    region: str | None = ""

    def url(self, uri: str) -> str:
        """Return the URL of ``oss://bucket/key`` or ``/bucket/key``; without an endpoint, the path of a local file.

        Raises:
            InvalidURL: ``uri`` has neither form.

        """
        rest = uri.removeprefix("oss://") if uri.startswith("oss://") else uri.removeprefix("/")
        if rest == uri or not rest.partition("/")[0]:
            raise InvalidURL(f"write oss://bucket/key or /bucket/key, not {uri!r}")
        return f"oss://{rest}" if self.endpoint else f"/{rest}"

    @property
    def store(self) -> OSSOptions | None:
        """The options of the store; None for local files."""
        if not self.endpoint:
            return None
        provided = None if self.cred_provider is None else _Provided(self.cred_provider)
        return OSSOptions(
            endpoint=self.endpoint,
            region=self.region or None,
            credentials_file=self.cred_path or None,
            credentials=provided,
        )


class Connected:
    """Base of classes that open objects by URI, with the connector's arguments."""

    def __init__(
        self,
        endpoint: str,
        cred_path: str = "",
        config_path: str = "",
        cred_provider: Any = None,  # noqa: ANN401  any SDK's
        region: str = "",
    ) -> None:
        """Use these options for every URI: see ``OssMapDataset.from_prefix``.

        Raises:
            ValueError: ``endpoint`` is empty.

        """
        if not endpoint:
            raise WrongArgument("the endpoint is empty: pass one such as https://oss-cn-beijing.aliyuncs.com")
        self.access = Access(endpoint, cred_path, config_path, cred_provider, region)


@dataclass(frozen=True, slots=True)
class _Provided:
    """Adapter of a credentials provider of Alibaba's SDKs: a function that returns ``ps.Credentials``."""

    provider: Any

    def __call__(self) -> Credentials:
        found = self.provider.get_credentials()
        expires = _field(found, "expiration")
        if isinstance(expires, datetime):
            expires = (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp()
        access_key, secret_key = _field(found, "access_key_id"), _field(found, "access_key_secret")
        if not access_key or not secret_key:
            raise ConfigError(f"cred_provider={type(self.provider).__name__} gave no access_key_id and secret")
        return Credentials(
            str(access_key),
            str(secret_key),
            str(_field(found, "security_token") or ""),
            float(expires) if isinstance(expires, int | float) else None,
            found_in="cred_provider",
        )


def _field(found: object, name: str) -> object:
    """Return a field of credentials: an attribute in the newer SDK, a method ``get_…`` in the older."""
    value = getattr(found, name, None)
    method = getattr(found, f"get_{name}", None)
    return method() if value is None and callable(method) else value


TAR = "read single objects by from_prefix, or the archive with ps.open and tarfile"


def _refuse(name: str, instead: str) -> NoReturn:
    raise Unsupported(f"{name} is not a part of penstock.compat.osstorchconnector: {instead}")


class OssClient:
    """The connector's internal client, not implemented; use Penstock's functions."""

    def __init__(self, *_args: object, **_options: object) -> None:
        """Raise ``Unsupported``."""
        _refuse("OssClient", "use ps.open, ps.list, ps.stat, ps.copy and ps.delete with store=ps.OSSOptions(…)")


def new_data_object(*_args: object, **_options: object) -> NoReturn:
    """Raise ``Unsupported``: datasets create their items themselves."""
    _refuse("new_data_object", "make a DataObject(key, data, label)")


def generate_tar_archive(*_args: object, **_options: object) -> NoReturn:
    """Raise ``Unsupported``: the index of an archive is the connector's own format."""
    _refuse("generate_tar_archive", TAR)
