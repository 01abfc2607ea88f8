"""Contracts between drivers, transports, credentials and the engine."""
