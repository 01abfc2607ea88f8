"""OpenTelemetry: spans of events, and metrics of counts."""
