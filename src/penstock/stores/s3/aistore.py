"""AIStore's token, from the environment variable or file that its command line and its SDK use."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.stores.http.network import first, variables

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["auth_token"]

_FILE = "~/.config/ais/cli/auth.token"  # where ``ais auth login`` writes it


def auth_token(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the origin of a token, and the token: from ``AIS_AUTHN_TOKEN``, else from ``AIS_AUTHN_TOKEN_FILE``.

    The default file is the one of AIStore's command line. Without a token, both texts are empty.

    Raises:
        ConfigError: The named file does not exist; the file or the token is invalid.

    """
    if token := environ.get("AIS_AUTHN_TOKEN"):
        return "AIS_AUTHN_TOKEN", _clean(token, "AIS_AUTHN_TOKEN")
    named, text = first(variables(environ, "AIS_AUTHN_TOKEN_FILE"))
    path = Path(os.path.expanduser(text or _FILE))  # noqa: PTH111  pathlib's raises without HOME
    try:
        held = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if text is None:
            return "", ""
        raise ConfigError(f"{named} names the file {path}, which is not there") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {path} cannot be read: {type(error).__name__}") from None
    try:
        value = json.loads(held)
    except (ValueError, RecursionError):
        value = held
    token = value.get("token") if isinstance(value, dict) else held.strip()
    return f"the token file {path}", _clean(token, f"the token file {path}")


def _clean(token: object, named: str) -> str:
    if not isinstance(token, str) or not token or not all("!" <= char <= "~" for char in token):
        raise ConfigError(f"{named} holds no token: text of visible ASCII characters, or JSON with token")
    return token
