"""Every arrow, home and size of the design holds in src/penstock; and the checker that says so finds planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture import complaints, unmirrored

SOURCE = Path(__file__).parents[1] / "src"


def real_sources() -> dict[str, str]:
    paths = {path: path.relative_to(SOURCE).with_suffix("").parts for path in SOURCE.glob("penstock/**/*.py")}
    return {".".join(parts).removesuffix(".__init__"): path.read_text("utf-8") for path, parts in paths.items()}


def test_the_house_stands_as_drawn():
    sources = real_sources()
    assert "penstock.errors" in sources
    found = complaints(sources)
    assert not found, "\n".join(["", *found])


def test_every_module_has_a_test_file_of_its_own():
    folder = SOURCE.parent / "tests"
    tests = {path.relative_to(folder).as_posix() for path in folder.glob("**/test_*.py")}
    assert unmirrored(real_sources(), tests) == []


def test_a_module_without_a_test_file_is_found():
    sources = ["penstock", "penstock.room", "penstock.room.file", "penstock.errors", "penstock.protocols.driver"]
    sources += ["penstock.__main__", "penstock.room.__main__"]
    assert unmirrored(sources, {"test_errors.py"}) == ["room.file"]


# A small house that is sound, and faults to plant in it one at a time.
HOUSE = {
    "penstock": "def __getattr__(name):\n    from penstock import loading\n",
    "penstock.errors": "class MissingExtra(Exception): pass",
    "penstock.values": "import os\nimport numpy\nfrom penstock.errors import MissingExtra",
    "penstock.buffer": "import ctypes",
    "penstock.protocols": "'''Contracts.'''",
    "penstock.protocols.driver": "class Reads(Protocol):\n    def read(self):\n        '''Read.'''",
    "penstock.events": "from penstock.values import Span",
    "penstock.transport.libcurl": "import ctypes\nimport pycurl",
    "penstock.drivers.credentials": "from penstock.errors import MissingExtra\ndef load(): import botocore",
    "penstock.fetch.plan": "import numpy\nfrom penstock.values import Span",
    "penstock.fetch.fetcher": "import threading\nfrom penstock.fetch import plan",
    "penstock.providers.urls": "import re",
    "penstock.providers.s3": "def begin():\n    from penstock.drivers import credentials",
    "penstock.source": "from penstock.fetch.fetcher import Fetcher\nfrom penstock.providers import urls",
    "penstock.verbs": "from penstock.source import Source",
    "penstock.catalog": "if TYPE_CHECKING:\n    from penstock.source import Source",
    "penstock.order.partition": "from penstock.values import Place",
    "penstock.checkpoint.run.writer": "from penstock.errors import MissingExtra\ndef save():\n    import torch",
    "penstock.checkpoint.dcp": "import torch",
    "penstock.datasets.map": "import torch\nfrom penstock import catalog, order",
    "penstock.loading": "import torch\nfrom penstock.datasets import map",
    "penstock.testing": "import pytest\nfrom penstock.drivers import credentials",
    "penstock.demo": "import penstock as ps\nfrom penstock import testing",
    "penstock.cli": "from penstock.verbs import open\nfrom penstock.demo import run",
}

LONG = "\n".join(["def long():", "    '''Doc.", "", "    doc'''", "    # why", *["    x = 1"] * 48])

FAULTS = {
    "upwards": (
        {"penstock.config": "from penstock.source import Source"},
        "penstock.config:1: rule 1: config may not import source: floor 2 to 5",
    ),
    "upwards-late": (
        {"penstock.cache": "def f():\n    from penstock.catalog import scan"},
        "penstock.cache:2: rule 1: cache may not import catalog: floor 3 to 7",
    ),
    "upwards-for-types": (
        {"penstock.events": "if TYPE_CHECKING:\n    from penstock.loading import Loader"},
        "penstock.events:2: rule 1: events may not import loading: floor 2 to 9",
    ),
    "upwards-by-name": (
        {"penstock.events": "import importlib\nimportlib.import_module('penstock.loading')"},
        "penstock.events:2: rule 1: events may not import loading: floor 2 to 9",
    ),
    "siblings": (
        {"penstock.formats": "from penstock.catalog import scan"},
        "penstock.formats:1: rule 1: formats may not import catalog: floor 7 to 7",
    ),
    "ground-siblings": (
        {"penstock.options": "import penstock.values"},
        "penstock.options:1: rule 1: options may not import values: floor 1 to 1",
    ),
    "rightwards-within-a-room": (
        {"penstock.checkpoint.commit.saving": "def f():\n    from penstock.checkpoint.run.writer import save"},
        "penstock.checkpoint.commit.saving:2: rule 1: checkpoint/commit may not import checkpoint/run",
    ),
    "part-without-a-place": (
        {"penstock.checkpoint.shelf": ""},
        "penstock.checkpoint.shelf:1: rule 1: checkpoint/shelf has no place among the parts of checkpoint",
    ),
    "circle": (
        {"penstock.fetch.plan": "from penstock.fetch.fetcher import Fetcher"},
        "penstock.fetch.fetcher:1: rule 1: import circle among penstock.fetch.fetcher, penstock.fetch.plan",
    ),
    "face": (
        {"penstock.datasets.iterable": "import penstock"},
        "penstock.datasets.iterable:1: rule 1: datasets may not import the face, which imports everything",
    ),
    "relative": (
        {"penstock.fetch.hedge": "from .retry import delay"},
        "penstock.fetch.hedge:1: rule 1: relative import: spell the module out",
    ),
    "foreign-ground": (
        {"penstock.errors": "import pycurl\nMissingExtra = 1"},
        "penstock.errors:1: rule 2: ground imports the standard library and numpy only, not pycurl",
    ),
    "algorithm-in-a-contract": (
        {"penstock.protocols.cache": "def best(a, b):\n    return max(a, b)"},
        "penstock.protocols.cache:1: rule 2: best has a body: protocols/ holds no algorithm",
    ),
    "wide-contract": (
        {
            "penstock.protocols.sink": "class Sink(Protocol):\n"
            + "\n".join(f"    def m{n}(self): ..." for n in range(6))
        },
        "penstock.protocols.sink:1: rule 2: contract Sink has 6 methods, not 1 to 5",
    ),
    "engine-knows-engine": (
        {"penstock.fetch.reading.lookahead": "from penstock.drivers import credentials"},
        "penstock.fetch.reading.lookahead:1: rule 3: engines are strangers: fetch may not import drivers",
    ),
    "engine-named-above-the-waist": (
        {"penstock.catalog": "from penstock.fetch.plan import merge"},
        "penstock.catalog:1: rule 4: only source joins engines: catalog may not import fetch",
    ),
    "source-names-a-dialect": (
        {"penstock.source": "from penstock.drivers import credentials"},
        "penstock.source:1: rule 4: source names no dialect: source may not import drivers",
    ),
    "provider-fetches": (
        {"penstock.providers.s3": "def begin():\n    from penstock.fetch.plan import merge"},
        "penstock.providers.s3:2: rule 4: a provider opens, and fetches nothing: providers may not import fetch",
    ),
    "provider-by-name": (
        {"penstock.datasets.iterable": "from penstock.providers.s3 import PROVIDER"},
        "penstock.datasets.iterable:1: rule 4: a URL says which provider: datasets may not import providers.s3",
    ),
    "datasets-know-checkpoint": (
        {"penstock.datasets.iterable": "from penstock.checkpoint.run.writer import save"},
        "penstock.datasets.iterable:1: rule 5: datasets may not know checkpoint",
    ),
    "library-away-from-home": (
        {"penstock.drivers.http": "import pycurl"},
        "penstock.drivers.http:1: rule 6: pycurl lives in transport.libcurl",
    ),
    "pointers-away-from-home": (
        {"penstock.transport.loop": "import ctypes"},
        (
            "penstock.transport.loop:1: rule 6: ctypes lives in "
            "transport.libcurl, transport.easy, transport.multi, transport.pool, transport.stream, buffer"
        ),
    ),
    "library-without-a-home": (
        {"penstock.cache": "from penstock.errors import MissingExtra\ndef f():\n    import zstandard"},
        "penstock.cache:3: rule 6: zstandard has no home: give it one in HOMES",
    ),
    "optional-at-once": (
        {"penstock.checkpoint.run.torch": "import torch"},
        "penstock.checkpoint.run.torch:1: rule 6: torch is optional: import it inside the function that needs it",
    ),
    "optional-at-once-beside-a-file-that-may": (
        {"penstock.checkpoint.run.ranksx": "import torch"},
        "penstock.checkpoint.run.ranksx:1: rule 6: torch is optional: import it inside the function that needs it",
    ),
    "optional-and-silent": (
        {"penstock.observe": "def f():\n    import opentelemetry"},
        "penstock.observe:1: rule 6: nothing names the extra that brings opentelemetry",
    ),
    "engine-knows-a-sink": (
        {"penstock.transport.loop": "from penstock.observe import log"},
        "penstock.transport.loop:1: rule 7: engines emit events: transport may not import a sink",
    ),
    "pure-file-does-io": (
        {"penstock.fetch.backoff": "import random"},
        "penstock.fetch.backoff:1: rule 8: a pure file may not import random",
    ),
    "pure-file-opens": (
        {"penstock.cache.evict": "def f(path):\n    return open(path)"},
        "penstock.cache.evict:2: rule 8: a pure file may not call open",
    ),
    "order-does-io": (
        {"penstock.order.cursor": "from time import time"},
        "penstock.order.cursor:1: rule 8: a pure file may not import time",
    ),
    "order-knows-a-room": (
        {"penstock.order.cursor": "from penstock.source import Source"},
        "penstock.order.cursor:1: order: integers only: it may not import source",
    ),
    "testing-in-use": (
        {"penstock.cli": "from penstock.testing import faults"},
        "penstock.cli:1: testing: only demo and tests import it, not cli",
    ),
    "room-without-a-floor": ({"penstock.extra": ""}, "penstock.extra:1: rooms: extra has no floor"),
    "long-file": (
        {"penstock.cache": "x = 1\n" * 501},
        "penstock.cache:1: section 7: 501 lines: a file has at most 500",
    ),
    "crowded-folder": (
        {f"penstock.cache.{letter}": "" for letter in "abcdefghijklmnop"},
        "penstock.cache:1: section 7: 16 files and subpackages: a folder has at most 15",
    ),
    "long-function": (
        {"penstock.cache": LONG},
        "penstock.cache:1: section 7: long has 49 code lines, more than 48",
    ),
    "many-arguments": (
        {"penstock.cache": "class C:\n    def f(self, a, b, c, /, d, *rest, e, f, g): pass"},
        "penstock.cache:2: section 7: f takes 7 arguments, more than 6",
    ),
    "empty-name": (
        {"penstock.cache.utils": ""},
        "penstock.cache.utils:1: section 7: utils is no name: one lower-case word that says the job",
    ),
    "two-word-name": (
        {"penstock.cache.disk_cache": ""},
        "penstock.cache.disk_cache:1: section 7: disk_cache is no name: one lower-case word that says the job",
    ),
}


def test_a_sound_house_gets_no_complaint():
    assert complaints(HOUSE) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_gets_exactly_its_complaint(fault):
    planted, complaint = FAULTS[fault]
    assert complaints(HOUSE | planted) == [complaint]
