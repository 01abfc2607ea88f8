"""What was learned lately is forgotten in order, and after so many uses."""

from penstock.interop.arrow import Recent


def test_the_oldest_is_forgotten():
    recent = Recent(2)
    for key in ("a", "b", "c"):
        recent.keep(key, key.upper())
    assert [recent.get(key) for key in ("a", "b", "c", "c", "c")] == [None, "B", "C", "C", "C"]
    recent.keep("d", "D")
    assert [recent.get(key) for key in ("b", "c", "d")] == [None, "C", "D"]


def test_each_is_given_out_so_many_times():
    recent = Recent(9, uses=2)
    recent.keep("a", 1)
    assert [recent.get("a"), recent.get("a"), recent.get("a")] == [1, 1, None]
    recent.keep("a", 1)
    recent.get("a")
    recent.keep("a", 2)
    assert [recent.get("a"), recent.get("a"), recent.get("a")] == [2, 2, None]


def test_forgotten_entry_is_absent():
    recent = Recent(9)
    recent.keep("a", 1)
    recent.forget("a")
    recent.forget("a")
    assert recent.get("a") is None
