"""How bytes are known to be what was written: checksums of blocks, the manifest that holds them, JSON with its own."""
