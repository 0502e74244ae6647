"""Bytes captured from real brokers, and the script that captures them. See README.md."""
