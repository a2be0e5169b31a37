"""A digest of several parts, for the keys of caches."""

import hashlib


def digest(*parts: str | bytes) -> str:
    """Return SHA-256 in hexadecimal; lengths are hashed too, so that parts stay separate."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()
