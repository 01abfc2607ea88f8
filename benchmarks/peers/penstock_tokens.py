"""Penstock over files of tokens: windows in lanes, as int64 tensors."""

from meter import Meter
from token_windows import train

train(Meter())
