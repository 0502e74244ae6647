"""Checks ``ssl.cipher.suites``: in OpenSSL's notation, it can switch off more than ciphers."""

from mirror.service.config.checks.refusal import refused

_LEVEL = "@SECLEVEL="
_LEAST_LEVEL = 1
"""OpenSSL's level 0 has no limits. Even ciphers without authentication may be chosen ("ALL" includes them), and then no
certificate is checked, whatever else is set. Level 1 requires 80 bits of security."""


def check_ciphers(ciphers: str) -> str:
    """Returns the value as it is. Raises PydanticCustomError if OpenSSL cannot use it, or if it disables TLS's
    security."""
    if not ciphers:
        return ciphers
    import ssl  # imported only here: the supervisor makes no connections

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    known = True
    try:
        context.set_ciphers(ciphers)
    except (ssl.SSLError, ValueError):
        known = False
    if _LEVEL in ciphers and context.security_level < _LEAST_LEVEL:
        raise refused(
            f"has {_LEVEL}{context.security_level}, with which OpenSSL accepts keys and signatures of any weakness, "
            "and ciphers without authentication or encryption",
            f"remove that; for brokers with short keys or SHA-1, {_LEVEL}{_LEAST_LEVEL} is enough",
        )
    if not known:
        raise refused(
            "has no cipher that OpenSSL knows",
            'write OpenSSL\'s names for TLS 1.2, such as "ECDHE-RSA-AES256-GCM-SHA384", separated by colons',
        )
    return ciphers
