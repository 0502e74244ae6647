"""The certificate of an audit: what was compared and found, in one file that can be signed and verified offline."""
