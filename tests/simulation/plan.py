"""The plan of a run, from a seed: which features are on, and which operations follow one another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.store import Weather

DIALECTS = ("s3", "gcs", "oss", "azure")
# A refusal that asks for more patience than clients have.
LATER = "503-later"
# Faults that a client must survive, whatever it does.
ANSWERS = ("500", "502", "503", "503-after", LATER, "504", "429", "408", "error-200")
BREAKS = ("reset", "empty", "idle", "lost", "reset-headers", "reset-body", "truncate", "stall", "stall-body", "drip")
# Answers that are wrong, and that a client must notice.
LIES = ("longer", "range-whole", "range-200", "range-other", "garbage", "etag", "duplicate")
CACHES = ("", "", "immutable", "ttl", "revalidate")


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a scenario; ``number`` decides its dice, also when others are left out."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.number}:{self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does.

    Attributes:
        seed: The seed that it was made from.
        features: Names of the features that are on.
        steps: Operations, in order.

    """

    seed: int
    dialect: str
    cache: str
    features: frozenset[str]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        features, steps = ",".join(sorted(self.features)), ",".join(map(str, self.steps))
        return f"{self.seed} {self.dialect} {self.cache or '-'} {features or '-'} {steps or '-'}"

    def without(self, *, steps: frozenset[int] = frozenset(), feature: str = "") -> Plan:
        """Return a smaller plan: with fewer operations, or a feature less."""
        kept = tuple(each for each in self.steps if each.number not in steps)
        return replace(self, steps=kept, features=self.features - {feature})

    def dice(self, of: str) -> Random:
        """Return dice for one purpose, the same whatever else is in the plan."""
        return Random(f"{self.seed}/plan/{of}")

    def weather(self) -> Weather:
        """Return the network of the run."""
        dice = self.dice("weather")
        faults = tuple(
            name
            for feature, names in (("answers", ANSWERS), ("breaks", BREAKS), ("lies", LIES))
            for name in names
            if feature in self.features and dice.random() < 0.6
        )
        return Weather(
            usual_s=dice.choice((0.001, 0.01, 0.05)),
            tail=dice.choice((0.02, 0.1, 0.3)) if "tails" in self.features else 0.0,
            bytes_per_s=dice.choice((2e6, 50e6)),
            unconnected=dice.choice((0.02, 0.2)) if "unconnected" in self.features else 0.0,
            faulty=dice.choice((0.02, 0.1, 0.3)),
            faults=faults,
            late=dice.choice((0.2, 0.9)) if "late" in self.features else 0.0,
        )


SWITCHES = ("answers", "breaks", "lies", "tails", "unconnected", "late", "hedge", "writer", "split", "jumps", "small")
SWITCHES += ("deaf", "outages", "node", "expiry")


def make(seed: int, operations: tuple[str, ...], length: int = 12) -> Plan:
    """Return the plan of a seed, over a random choice of the given operations."""
    dice = Random(f"{seed}/plan")
    features = frozenset(each for each in SWITCHES if dice.random() < 0.5)
    chosen = dice.sample(operations, dice.randint(1, min(4, len(operations))))
    steps = tuple(Step(number, dice.choice(chosen)) for number in range(1, dice.randint(3, length) + 1))
    return Plan(seed, dice.choice(DIALECTS), dice.choice(CACHES), features, steps)


def read(text: str) -> Plan:
    """Return the plan that ``str`` of a plan wrote."""
    seed, dialect, cache, features, steps = text.split()
    pairs = [each.split(":") for each in steps.split(",") if ":" in each]
    return Plan(
        int(seed),
        dialect,
        cache.strip("-"),
        frozenset(features.strip("-").split(",")) - {""},
        tuple(Step(int(number), name) for number, name in pairs),
    )
