"""HTTP transport: one I/O thread per process drives libcurl and fills the callers' memory. Knows HTTP, not S3."""
