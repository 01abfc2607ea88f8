"""A background save beside steps that an accelerator computes: the training's thread waits for each."""

import time

from beside import measure

_STEP_S = 0.02

measure(lambda: time.sleep(_STEP_S))
