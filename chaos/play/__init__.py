"""Plays one scenario: its stage, its mirrors, and the operations that acts use."""
