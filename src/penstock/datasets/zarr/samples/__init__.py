"""Which samples some arrays have, and what each takes of which chunk: pure, integers only."""
