"""Functions of maps: their identity, how they reach other processes, and how their errors are told apart."""

import builtins
import pickle
import subprocess
import sys

import pytest

from penstock.errors import Transient, Unusable
from penstock.jobs.mapping import function as module
from penstock.jobs.mapping.function import FunctionCalls, MapFunction
from penstock.jobs.mapping.pieces import SourceSample
from penstock.jobs.parts.records import PartRecord
from tests.jobs.mapping.functions import Counting, rows, tokenise

COUNTS = ("samples", "kept", "left_out", "skipped", "outputs")


def called(function, values, *, batch=None, on_error="raise", integers=False):
    """Return the outputs for some values, and the record of the part."""
    record = PartRecord(3, dict.fromkeys(COUNTS, 0))
    samples = (
        SourceSample(lambda value=value: value, 1, lambda at=at: (f"sample {at}", f"x{at}"))
        for at, value in enumerate(values)
    )
    calls = FunctionCalls(MapFunction(function, "1"), batch, None, on_error)
    return [output for _, output in calls.outputs(samples, record, integers=integers)], record


def test_the_identity_is_name_and_version_or_source_text():
    assert MapFunction(tokenise, "a1").identity == "tests.jobs.mapping.functions:tokenise a1"
    by_text = MapFunction(tokenise, None).identity
    assert by_text.startswith("tests.jobs.mapping.functions:tokenise source ")
    assert by_text != MapFunction(rows, None).identity
    assert MapFunction(Counting, None).identity == MapFunction(Counting(), None).identity
    with pytest.raises(Unusable, match="cannot find the source text of builtins:len: pass version="):
        MapFunction(len, None)
    with pytest.raises(Unusable, match="function must be callable, got a str"):
        MapFunction("len", "1")


def test_lambdas_are_sent_with_their_code(tmp_path):
    given = 5
    data = pickle.dumps(MapFunction(lambda value: value + given, "1"))
    (tmp_path / "data").write_bytes(data)
    program = "import pickle, sys; f = pickle.load(open(sys.argv[1], 'rb')); print(f(3), f.identity[-1])"
    ended = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "data"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "8 1\n"


def test_functions_of_modules_are_sent_by_name_without_cloudpickle(monkeypatch):
    monkeypatch.setattr(module, "find_cloudpickle", lambda: None)
    found = pickle.loads(pickle.dumps(MapFunction(rows, "1")))
    assert (found.identity, found({"n": 1, "text": "a"})) == (
        "tests.jobs.mapping.functions:rows 1",
        {"n": 1, "text": "a"},
    )
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(MapFunction(lambda value: value, "1"))


def test_cloudpickle_is_looked_for_and_then_ray_s_copy(monkeypatch):
    real = builtins.__import__

    def hide(name, *rest):
        if name == "cloudpickle":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", hide)
    monkeypatch.setitem(sys.modules, "ray.cloudpickle", "its copy")
    assert module.find_cloudpickle() == "its copy"


def test_none_leaves_out_and_a_list_has_several_outputs():
    outputs, record = called(lambda value: value, [None, 1, [2, 3], [], [None], [4, None]])
    assert outputs == [1, 2, 3, 4]
    assert record.counts == {"samples": 6, "kept": 3, "left_out": 3, "skipped": 0, "outputs": 4}


def test_a_list_of_integers_is_one_output_of_tokens():
    outputs, record = called(lambda value: value, [[1, 2], [[3], [4]], []], integers=True)
    assert outputs == [[1, 2], [3], [4]]
    assert record.counts == {"samples": 3, "kept": 2, "left_out": 1, "skipped": 0, "outputs": 3}


def test_a_batch_with_a_bad_sample_is_called_again_one_by_one():
    def halve(values):
        return [1 / value for value in values]

    outputs, record = called(halve, [1, 2, 0, *[4] * 30], batch=8, on_error="skip")
    assert outputs == [1, 0.5, *[0.25] * 30]
    assert record.counts == {"samples": 33, "kept": 32, "left_out": 0, "skipped": 1, "outputs": 32}
    assert [each["url"] for each in record.failures] == ["x2"]
    cause = "skipped: cannot map sample 2: ZeroDivisionError: division by zero"
    assert record.failures[0]["error"].startswith(cause)
    with pytest.raises(Unusable, match="cannot map 8 samples from sample 0 on: ZeroDivisionError"):
        called(halve, [1, 2, 0, *[4] * 30], batch=8)


@pytest.mark.parametrize(
    ("bad", "total", "allowed"), [(20, 100, True), (21, 100, False), (21, 300, True), (1, 1, False)]
)
def test_a_tenth_of_a_part_may_be_skipped_or_twenty_samples(bad, total, allowed):
    values = [0] * bad + [1] * (total - bad)
    if allowed:
        _, record = called(lambda value: 1 / value, values, on_error="skip")
        assert (record.counts["skipped"], len(record.failures)) == (bad, 20)
    else:
        with pytest.raises(Unusable, match=rf"{bad} of {total} samples of part 3 would be skipped"):
            called(lambda value: 1 / value, values, on_error="skip")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_are_not_errors_of_a_sample(error):
    def interrupt(_value):
        raise error

    with pytest.raises(error):
        called(interrupt, [1], on_error="skip")


def test_outage_of_a_store_that_the_function_reads_fails_the_part_and_skips_no_sample():
    def read(_value):
        raise Transient("the store is down")

    with pytest.raises(Transient, match="the store is down"):
        called(read, [1, 2, 3], on_error="skip")
