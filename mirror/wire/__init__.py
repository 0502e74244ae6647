"""Fetch and Produce frames over borrowed buffers: bytes in, values out, and back. No I/O.

Every other request goes through ``kafka.protocol``, which is complete but copies record bytes; these two must not.
"""
