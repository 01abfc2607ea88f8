"""Penstock over many tar files: the first batch of an epoch, with a saved index."""

from first_batch import read
from meter import Meter

read(Meter(), resumes=False)
