"""Engine of requests, retried and verified, with caches, listings and memory; independent of any store."""
