"""What HTTP dialects share: verified answers, code tables, XML, listings and metadata; no provider is known here."""
