"""Samples of arrays: their numbering, and the parts of chunks that each takes. Pure, integers only."""
