"""All classes of options: those of stores, and of their parts."""

import penstock as ps

__all__ = ["KINDS"]

KINDS = [getattr(ps, name) for name in ps.__all__ if name.endswith("Options")]
