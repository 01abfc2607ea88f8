"""Stores: one folder per provider, with its options, credentials, signing, codes and driver."""
