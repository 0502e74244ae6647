"""Reads and writes Fetch and Produce frames over borrowed buffers. No I/O.

Every other request goes through ``kafka.protocol``, which is complete but copies record bytes. These two must not.
"""
