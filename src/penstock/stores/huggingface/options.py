"""Options of the Hugging Face Hub."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.options.parts import RetryOptions, StoreOptions, check_sources
from penstock.options.private import PUBLIC


def retry_past_window() -> RetryOptions:
    """Return retry options that outlast a window of the hub's rate limits, which is 300 s."""
    return RetryOptions(patience_s=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HFOptions(StoreOptions):
    """Address of the Hugging Face Hub, and the token for it. These options override the environment and every file.

    Attributes:
        token: User access token, sent to the hub's host only. Default: ``HF_TOKEN``, then the file that
            ``hf auth login`` writes (``HF_TOKEN_PATH``, else ``token`` in ``HF_HOME``, else
            ``~/.cache/huggingface/token``), unless ``HF_HUB_DISABLE_IMPLICIT_TOKEN`` is set. Never shown or logged.
        anonymous: Send no token (public repositories).
        endpoint: Base URL of the hub or of a mirror; default ``HF_ENDPOINT``, then ``https://huggingface.co``.
        transport: HTTP options.
        retry: Retry options; ``patience_s`` is 600 by default here, because an exhausted quota takes up to 300 s.
        read: Reading options.
        write: Writing options; not used.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine, among them the hub's rate limits.

    Example:
        >>> options = ps.HFOptions(token="hf_secret")
        >>> "hf_secret" in repr(options)
        False
    """

    token: str | None = field(default=None, repr=False)
    anonymous: bool = False
    endpoint: str | None = field(default=None, metadata=PUBLIC)
    retry: RetryOptions = field(default_factory=retry_past_window)

    def __post_init__(self) -> None:
        check_sources(self, "anonymous", "token")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ConfigError("token must be printable ASCII: it is a part of a header")
