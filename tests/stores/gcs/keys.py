"""A service account's key, made for a test."""

from __future__ import annotations

__all__ = ["EMAIL", "new_key", "service_account"]

EMAIL = "me@project.iam.gserviceaccount.com"


def new_key():
    """Return a private key of RSA as PEM: a tenth of a second."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


def service_account(server, private_key):
    """Return what a service account's file holds, with a token server on loopback."""
    return {
        "type": "service_account",
        "client_email": EMAIL,
        "private_key_id": "1",
        "private_key": private_key,
        "token_uri": f"{server.url}/oauth",
        "project_id": "project",
    }
