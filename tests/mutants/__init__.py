"""Mutants: one small change at a time to the code of the guarantees, and the tests that reach it have to see it.

``make mutants`` (hours; not in CI) draws COUNT of them from SEED, over records, relay and audit. Cosmic Ray makes the
changes; which tests are run is decided here: those that reach the changed line, the quickest first. A mutant that none
of them sees is a survivor: it gets a test, or, if it changes nothing that anybody could see, a line in
``equivalent.toml`` that says why.
"""
