"""Detects changes of the files of certificates and secrets, which are replaced while the mirror runs."""

import os

from mirror.net.security.options import SecurityOptions

Stamp = tuple[int, int, int] | None
"""Time of the last change in ns, size, and inode; None: there is no such file."""


def stamp(file: str) -> Stamp:
    """Returns the file's stamp. ``file``: a path, or empty for no file."""
    if not file:
        return None
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def stamps(security: SecurityOptions) -> tuple[Stamp, ...]:
    """Returns the stamps of all files that these settings name. Files of OAUTHBEARER tokens are left out: clients read
    them whenever they need a token."""
    tls, sasl = security.tls, security.sasl
    files = [tls.ca_file, tls.certificate_file, tls.key_file, tls.key_password.file] if tls is not None else []
    if sasl is not None:
        files.append(sasl.password.file)
    return tuple(map(stamp, files))
