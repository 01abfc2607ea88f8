from __future__ import annotations

import pytest

from penstock.compat.s3torchconnector.dcp import (
    BinaryPrefixStrategy,
    DefaultPrefixStrategy,
    HexPrefixStrategy,
    NumericPrefixStrategy,
    RoundRobinPrefixStrategy,
    S3PrefixStrategyBase,
)
from penstock.errors import Unusable

# What s3torchconnector 1.5.0 gives for ranks 0, 1 and 4.
CASES = [
    (DefaultPrefixStrategy(), ["__0_", "__1_", "__4_"]),
    (BinaryPrefixStrategy(), ["0000000000/__0_", "0000000000/__1_", "0000000000/__4_"]),
    (BinaryPrefixStrategy(prefix_count=3), ["0000000000/__0_", "1000000000/__1_", "1000000000/__4_"]),
    (BinaryPrefixStrategy(2, 1, 5), ["000/epoch_2/__0_", "100/epoch_2/__1_", "001/epoch_2/__4_"]),
    (HexPrefixStrategy(epoch_num=3), ["0000000000/epoch_3/__0_", "0000000000/epoch_3/__1_", "0000000000/epoch_3/__4_"]),
    (HexPrefixStrategy(0, 1, 32), ["00/epoch_0/__0_", "10/epoch_0/__1_", "40/epoch_0/__4_"]),
    (RoundRobinPrefixStrategy(["p", "q"], 2), ["p/epoch_2/__0_", "q/epoch_2/__1_", "p/epoch_2/__4_"]),
    (RoundRobinPrefixStrategy(["p"]), ["p/__0_", "p/__1_", "p/__4_"]),
]


@pytest.mark.parametrize(("strategy", "prefixes"), CASES, ids=range(len(CASES)))
def test_prefixes_are_those_of_the_original(strategy, prefixes):
    assert isinstance(strategy, S3PrefixStrategyBase)
    assert [strategy(rank) for rank in (0, 1, 4)] == prefixes


def test_other_bases_are_a_subclass():
    class Ternary(NumericPrefixStrategy):
        def __init__(self):
            super().__init__(base=3, min_prefix_length=1, prefix_count=5)

    assert Ternary().prefix_map == ["00", "10", "20", "01", "11"]


@pytest.mark.parametrize("given", [{"epoch_num": "1"}, {"min_prefix_length": 0}, {"prefix_count": 0}])
def test_numbers_out_of_range_are_refused(given):
    for kind in (Unusable, ValueError):
        with pytest.raises(kind, match=next(iter(given))):
            HexPrefixStrategy(**given)
        with pytest.raises(kind, match="user_prefixes"):
            RoundRobinPrefixStrategy([])
