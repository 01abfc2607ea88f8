"""The S3 connector's name prefixes of the ranks' objects, which spread them over S3's partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.compat.arguments import WrongArgument

_LENGTH = 10


class S3PrefixStrategyBase(ABC):
    """Strategy that gives the prefix of the names of a rank's objects, below the checkpoint's path."""

    def __call__(self, rank: int) -> str:
        return self.generate_prefix(rank)

    @abstractmethod
    def generate_prefix(self, rank: int) -> str:
        """Return the prefix of a rank."""


class DefaultPrefixStrategy(S3PrefixStrategyBase):
    """Prefix ``__RANK_``."""

    def generate_prefix(self, rank: int) -> str:
        return f"__{rank}_"


class NumericPrefixStrategy(S3PrefixStrategyBase):
    """Prefix ``DIGITS/epoch_N/__RANK_``: the prefix's number in ``base``, least significant digit first."""

    def __init__(
        self, base: int, epoch_num: int | None = None, min_prefix_length: int = _LENGTH, prefix_count: int | None = None
    ) -> None:
        """Create ``prefix_count`` numbered prefixes; default: one per rank."""
        _check_number(min_prefix_length, "min_prefix_length", 1)
        if prefix_count is not None:
            _check_number(prefix_count, "prefix_count", 1)
        if epoch_num is not None:
            _check_number(epoch_num, "epoch_num", 0)
        self.base = base
        self.epoch_num = epoch_num
        self.min_prefix_len = min_prefix_length
        self.prefix_count = _ranks() if prefix_count is None else prefix_count
        length = max(min_prefix_length, len(_digits(self.prefix_count - 1, base)))
        numbers = (_digits(number, base).rjust(length, "0") for number in range(self.prefix_count))
        self.prefix_map = [each[::-1] for each in numbers]

    def generate_prefix(self, rank: int) -> str:
        return f"{self.prefix_map[rank % len(self.prefix_map)]}/{_epoch(self.epoch_num)}__{rank}_"


class BinaryPrefixStrategy(NumericPrefixStrategy):
    """Prefixes of binary digits."""

    def __init__(
        self, epoch_num: int | None = None, min_prefix_length: int = _LENGTH, prefix_count: int | None = None
    ) -> None:
        super().__init__(2, epoch_num, min_prefix_length, prefix_count)


class HexPrefixStrategy(NumericPrefixStrategy):
    """Prefixes of hexadecimal digits."""

    def __init__(
        self, epoch_num: int | None = None, min_prefix_length: int = _LENGTH, prefix_count: int | None = None
    ) -> None:
        super().__init__(16, epoch_num, min_prefix_length, prefix_count)


class RoundRobinPrefixStrategy(S3PrefixStrategyBase):
    """Prefix ``PREFIX/epoch_N/__RANK_``: ranks take the given prefixes in turn."""

    def __init__(self, user_prefixes: list[str], epoch_num: int | None = None) -> None:
        if not user_prefixes:
            raise WrongArgument("user_prefixes must not be empty")
        self.user_prefixes = user_prefixes
        self.epoch_num = epoch_num

    def generate_prefix(self, rank: int) -> str:
        return f"{self.user_prefixes[rank % len(self.user_prefixes)]}/{_epoch(self.epoch_num)}__{rank}_"


def _check_number(number: object, name: str, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise WrongArgument(f"{name} must be a whole number of at least {least}, got {number!r}")


def _epoch(number: int | None) -> str:
    return "" if number is None else f"epoch_{number}/"


def _digits(number: int, base: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, base)
        digits = "0123456789abcdef"[digit] + digits
        if not number:
            return digits


def _ranks() -> int:
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
