"""Work on many objects at once, and on their addresses: what the command line does, as functions."""
