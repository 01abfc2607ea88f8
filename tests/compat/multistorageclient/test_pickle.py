"""Pickles by URL."""

from __future__ import annotations

import io

import pytest

from penstock.compat import multistorageclient as msc
from penstock.errors import Unusable


def test_an_object_is_dumped_and_loaded(base):
    msc.pickle.dump({"a": 1}, f"{base}/p")
    for file in (f"{base}/p", msc.Path(f"{base}/p"), msc.open(f"{base}/p")):
        assert msc.pickle.load(file) == {"a": 1}
    with pytest.raises(Unusable, match=r"pickle\.dump writes to an open file"):
        msc.pickle.dump({}, io.BytesIO())
