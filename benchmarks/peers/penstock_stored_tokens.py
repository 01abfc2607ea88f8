"""Penstock over files of tokens: windows in lanes, as arrays of the stored type."""

from meter import Meter
from token_windows import train

train(Meter(), output="numpy")
