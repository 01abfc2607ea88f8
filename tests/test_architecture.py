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


def test_every_module_has_its_own_test_file():
    folder = SOURCE.parent / "tests"
    tests = {path.relative_to(folder).as_posix() for path in folder.glob("**/test_*.py")}
    assert unmirrored(real_sources(), tests) == []


def test_a_module_without_a_test_file_is_found():
    sources = ["penstock", "penstock.room", "penstock.room.file", "penstock.errors", "penstock.engine.contracts.driver"]
    sources += ["penstock.__main__", "penstock.room.__main__"]
    assert unmirrored(sources, {"test_errors.py"}) == ["room.file"]


# A small house that is sound, and faults to plant in it one at a time.
HOUSE = {
    "penstock": "def __getattr__(name):\n    from penstock.data import loading\n",
    "penstock.errors": "class MissingExtra(Exception): pass",
    "penstock.values": "import os\nimport numpy\nfrom penstock.errors import MissingExtra",
    "penstock.engine.buffer": "import ctypes",
    "penstock.engine.contracts": "'''Contracts.'''",
    "penstock.engine.contracts.driver": "class Reads(Protocol):\n    def read(self):\n        '''Read.'''",
    "penstock.events": "from penstock.values import Span",
    "penstock.engine.transport.libcurl": "import ctypes\nimport pycurl",
    "penstock.engine.fetch.plan": "import numpy\nfrom penstock.values import Span",
    "penstock.engine.fetch.fetcher": "import threading\nfrom penstock.engine.fetch import plan",
    "penstock.stores.s3.credentials": "from penstock.errors import MissingExtra\ndef load(): import botocore",
    "penstock.stores.s3.services": "def begin():\n    from penstock.stores.s3 import credentials",
    "penstock.stores.urls": "import re",
    "penstock.source": "from penstock.engine.fetch.fetcher import Fetcher\nfrom penstock.stores import urls",
    "penstock.verbs": "from penstock.source import Source",
    "penstock.data.catalog": "if TYPE_CHECKING:\n    from penstock.source import Source",
    "penstock.data.order.sampling": "from penstock.values import Place",
    "penstock.checkpoint.run.writer": "from penstock.errors import MissingExtra\ndef save():\n    import torch",
    "penstock.checkpoint.dcp": "import torch",
    "penstock.data.datasets.map": "import torch\nfrom penstock.data import catalog, order",
    "penstock.data.loading": "import torch\nfrom penstock.data.datasets import map",
    "penstock.jobs.syncing.sync": "from penstock.data import catalog",
    "penstock.testing": "import pytest\nfrom penstock.stores.s3 import credentials",
    "penstock.cli.demo": "import penstock as ps\nfrom penstock import testing",
    "penstock.cli": "from penstock.verbs import open\nfrom penstock.cli.demo import run",
}
# Every file is long enough to be one of its own, whoever imports it.
HOUSE = {name: text + "\n" * 80 for name, text in HOUSE.items()}

LONG = "\n".join(["def long():", "    '''Doc.", "", "    doc'''", "    # why", *["    x = 1"] * 60])

FAULTS = {
    "upwards": (
        {"penstock.stores.direct": "from penstock.source import Source"},
        "penstock.stores.direct:1: rule 1: stores may not import source: floor 2 to 3",
    ),
    "upwards-late": (
        {"penstock.engine.cache": "def f():\n    from penstock.data.catalog.discovery import scan"},
        "penstock.engine.cache:2: rule 1: engine may not import data: floor 1 to 4",
    ),
    "upwards-for-types": (
        {"penstock.events": "if TYPE_CHECKING:\n    from penstock.data.loading import Loader"},
        "penstock.events:2: rule 1: events may not import data: floor 0 to 4",
    ),
    "upwards-by-name": (
        {"penstock.events": "import importlib\nimportlib.import_module('penstock.data.loading')"},
        "penstock.events:2: rule 1: events may not import data: floor 0 to 4",
    ),
    "siblings": (
        {"penstock.interop": "from penstock.testing import faults"},
        "penstock.interop:1: testing: only cli/demo and tests import it, not interop",
    ),
    "rightwards-on-a-floor": (
        {"penstock.checkpoint.run.steps": "from penstock.jobs.syncing.sync import sync"},
        "penstock.checkpoint.run.steps:1: rule 1: checkpoint may not import jobs: floor 4 to 4",
    ),
    "ground-rightwards": (
        {"penstock.values": "import penstock.options"},
        "penstock.values:1: rule 1: values may not import options: floor 0 to 0",
    ),
    "rightwards-within-a-room": (
        {"penstock.checkpoint.commit.saving": "def f():\n    from penstock.checkpoint.run.writer import save"},
        "penstock.checkpoint.commit.saving:2: rule 1: checkpoint/commit may not import checkpoint/run",
    ),
    "rightwards-within-the-engine": (
        {"penstock.engine.buffer": "import penstock.engine.contracts.driver"},
        "penstock.engine.buffer:1: rule 1: engine/buffer may not import engine/contracts",
    ),
    "part-without-a-place": (
        {"penstock.checkpoint.shelf": ""},
        "penstock.checkpoint.shelf:1: rule 1: checkpoint/shelf has no place among the parts of checkpoint",
    ),
    "circle": (
        {"penstock.engine.fetch.plan": "from penstock.engine.fetch.fetcher import Fetcher" + "\n" * 80},
        (
            "penstock.engine.fetch.fetcher:1: rule 1: import circle among "
            "penstock.engine.fetch.fetcher, penstock.engine.fetch.plan"
        ),
    ),
    "face": (
        {"penstock.data.datasets.iterable": "import penstock"},
        "penstock.data.datasets.iterable:1: rule 1: data may not import the face, which imports everything",
    ),
    "relative": (
        {"penstock.engine.fetch.hedge": "from .retry import delay"},
        "penstock.engine.fetch.hedge:1: rule 1: relative import: spell the module out",
    ),
    "foreign-ground": (
        {"penstock.errors": "import pycurl\nMissingExtra = 1"},
        "penstock.errors:1: rule 2: ground imports the standard library and numpy only, not pycurl",
    ),
    "algorithm-in-a-contract": (
        {"penstock.engine.contracts.cache": "def best(a, b):\n    return max(a, b)"},
        "penstock.engine.contracts.cache:1: rule 2: best has a body: engine/contracts/ holds no algorithm",
    ),
    "wide-contract": (
        {
            "penstock.engine.contracts.sink": "class Sink(Protocol):\n"
            + "\n".join(f"    def m{n}(self): ..." for n in range(6))
        },
        "penstock.engine.contracts.sink:1: rule 2: contract Sink has 6 methods, not 1 to 5",
    ),
    "engine-knows-engine": (
        {"penstock.engine.cache.disk": "", "penstock.engine.read": "from penstock.engine.cache import disk"},
        "penstock.engine.read:1: rule 3: engines are strangers: read may not import cache",
    ),
    "engine-knows-a-store": (
        {"penstock.engine.read": "from penstock.stores.s3 import credentials"},
        "penstock.engine.read:1: rule 1: engine may not import stores: floor 1 to 2",
    ),
    "engine-named-above-the-waist": (
        {"penstock.data.catalog": "from penstock.engine.fetch.plan import merge"},
        "penstock.data.catalog:1: rule 4: only source joins engines: data may not import engine.fetch",
    ),
    "source-names-a-dialect": (
        {"penstock.source": "from penstock.stores.s3 import credentials"},
        "penstock.source:1: rule 4: a URL says which store: source may not import stores.s3.credentials",
    ),
    "source-sends": (
        {"penstock.source": "from penstock.engine.transport import libcurl"},
        "penstock.source:1: rule 4: source names no dialect: source may not import engine.transport",
    ),
    "store-fetches": (
        {"penstock.stores.s3.services": "def begin():\n    from penstock.engine.fetch.plan import merge"},
        "penstock.stores.s3.services:2: rule 4: a store opens, and fetches nothing: stores may not import engine.fetch",
    ),
    "store-by-name": (
        {"penstock.data.datasets.iterable": "from penstock.stores.s3.services import S3"},
        "penstock.data.datasets.iterable:1: rule 4: a URL says which store: data may not import stores.s3.services",
    ),
    "data-knows-checkpoint": (
        {"penstock.data.datasets.iterable": "from penstock.checkpoint.run.writer import save"},
        "penstock.data.datasets.iterable:1: rule 5: data may not know checkpoint",
    ),
    "library-away-from-home": (
        {"penstock.stores.http": "import pycurl"},
        "penstock.stores.http:1: rule 6: pycurl lives in engine.transport.libcurl",
    ),
    "pointers-away-from-home": (
        {"penstock.engine.transport.session": "import ctypes"},
        (
            "penstock.engine.transport.session:1: rule 6: ctypes lives in "
            "engine.transport.libcurl, engine.transport.easy, engine.transport.loop, engine.transport.stream, "
            "engine.buffer"
        ),
    ),
    "library-without-a-home": (
        {"penstock.engine.cache": "from penstock.errors import MissingExtra\ndef f():\n    import lz4"},
        "penstock.engine.cache:3: rule 6: lz4 has no home: give it one in HOMES",
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
        {"penstock.engine.transport.loop": "from penstock.observe import log"},
        "penstock.engine.transport.loop:1: rule 7: engines emit events: engine may not import a sink",
    ),
    "pure-file-does-io": (
        {"penstock.engine.cache.evict": "import random"},
        "penstock.engine.cache.evict:1: rule 8: a pure file may not import random",
    ),
    "pure-file-opens": (
        {"penstock.engine.cache.evict": "def f(path):\n    return open(path)"},
        "penstock.engine.cache.evict:2: rule 8: a pure file may not call open",
    ),
    "order-does-io": (
        {"penstock.data.order.cursor": "from time import time"},
        "penstock.data.order.cursor:1: rule 8: a pure file may not import time",
    ),
    "order-knows-a-room": (
        {"penstock.data.order.cursor": "from penstock.source import Source"},
        "penstock.data.order.cursor:1: order: integers only: it may not import source",
    ),
    "testing-in-use": (
        {"penstock.compat": "from penstock.testing import faults"},
        "penstock.compat:1: testing: only cli/demo and tests import it, not compat",
    ),
    "room-without-a-floor": ({"penstock.extra": ""}, "penstock.extra:1: rooms: extra has no floor"),
    "long-file": (
        {"penstock.engine.cache": "x = 1\n" * 701},
        "penstock.engine.cache:1: section 7: 701 lines: a file has at most 700",
    ),
    "crowded-folder": (
        {f"penstock.engine.cache.{letter}": "" for letter in "abcdefghijklmnopqrstu"},
        "penstock.engine.cache:1: section 7: 21 files and subpackages: a folder has at most 20",
    ),
    "namesakes": (
        {f"penstock.observe.{each}": "class _Part: ..." for each in "abc"},
        "penstock.observe.a:1: names: Part is defined in 3 modules (penstock.observe.b, penstock.observe.c), at most 2",
    ),
    "crumb": (
        {
            "penstock.engine.cache.layer": "from penstock.engine.cache import crumb" + "\n" * 80,
            "penstock.engine.cache.crumb": "x = 1\n" * 79,
        },
        (
            "penstock.engine.cache.crumb:1: section 7: 79 lines, and only penstock.engine.cache.layer imports it: "
            "it belongs there"
        ),
    ),
    "long-function": (
        {"penstock.engine.cache": LONG},
        "penstock.engine.cache:1: section 7: long has 61 code lines, more than 60",
    ),
    "many-arguments": (
        {"penstock.engine.cache": "class C:\n    def f(self, a, b, c, /, d, *rest, e, f, g): pass"},
        "penstock.engine.cache:2: section 7: f takes 7 arguments, more than 6",
    ),
    "empty-name": (
        {"penstock.engine.cache.utils": ""},
        "penstock.engine.cache.utils:1: section 7: utils must be one or two lower-case words that say the job",
    ),
    "three-word-name": (
        {"penstock.engine.cache.disk_block_cache": ""},
        (
            "penstock.engine.cache.disk_block_cache:1: section 7: disk_block_cache must be one or two lower-case words "
            "that say the job"
        ),
    ),
}


def test_a_sound_house_gets_no_complaint():
    assert complaints(HOUSE) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_architecture_fault_gets_exactly_one_complaint(fault):
    planted, complaint = FAULTS[fault]
    assert complaints(HOUSE | planted) == [complaint]
