"""What ``torch.load`` would refuse with weights only is found before it is saved, and named where it is."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict

import pytest
import torch

from penstock.checkpoint.torchfile.encoding import check_weights_only
from penstock.errors import Unusable


class Custom:
    """Something that only code can make."""


def test_weights_and_plain_values_pass_and_no_tensor_s_bytes_are_copied():
    weights = torch.empty(64 << 20, dtype=torch.uint8)
    tracemalloc.start()
    state = OrderedDict(
        a=weights, b=[weights[1:], 1.5, None, "text"], c={(1, 2): {3}}, d=torch.nn.Parameter(torch.ones(1))
    )
    check_weights_only(state, "state")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_the_innermost_thing_is_named_with_both_ways_out():
    state = {"x": [0, ({"deep": Custom()},)], "y": 1}
    with pytest.raises(Unusable, match=r"state\['x'\]\[1\]\[0\]\['deep'\] is a .*Custom, and needs .*Custom") as caught:
        check_weights_only(state, "state")
    assert "save plain values, or say weights_only=False when it is saved and when it is restored" in str(caught.value)


def test_unpicklable_value_error_omits_the_weights_only_advice():
    with pytest.raises(Unusable, match=r"state\['f'\] is a builtins.function, and cannot be pickled") as caught:
        check_weights_only({"f": lambda: 0}, "state")
    assert "weights_only=False" not in str(caught.value)


def test_a_value_that_holds_itself_is_searched_once():
    inner: list[object] = [Custom()]
    inner.insert(0, {"again": inner})
    with pytest.raises(Unusable, match="Custom"):
        check_weights_only(inner, "state")


def test_module_and_optimizer_errors_advise_saving_the_state_dict():
    module = torch.nn.Linear(1, 1)
    for each in (module, torch.optim.SGD(module.parameters(), 0.1)):
        with pytest.raises(
            Unusable, match=r"state\['it'\] is a torch.*: save its state_dict\(\), or say weights_only=False"
        ):
            check_weights_only({"it": each}, "state")
