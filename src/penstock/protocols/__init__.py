"""Contracts only: what a driver, a transport and a credential source promise. No algorithm lives here."""
