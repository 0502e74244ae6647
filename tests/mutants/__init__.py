"""Mutants: one small change at a time to the code of the guarantees, and the tests that reach it have to see it.

``make mutants`` (hours; not in CI) draws COUNT of them from SEED, over records, offsetmap, relay and audit. Cosmic Ray
makes the changes; which tests are run is decided here: of those that judge the package (``rooms``), the ones that reach
the changed line, the quickest first. A mutant that none of them sees is a survivor: it gets a test, or, if it changes
nothing that anybody could see, a line in ``equivalent.toml`` that says why.

A mutant is killed by a test that fails. Each copy of the project passes the tests of its first mutant before that, and
those of its last one at the end, without them. If tests end in another way (they hang, or are ended for their memory),
the same ones have to pass without the mutant, or the session ends: it is the machine that is ill.

The reach is measured before the first mutant: each room runs once under ``coverage``, and again only after a change to
it, to the code or to a helper. A package is judged by its own tests that need no broker, and relay also by some runs of
the simulation. Of these, the quickest are run that take a minute and a half together. So a mutant that only another
package's tests, a slow one or a real broker would see is a survivor, too: fewer tests can make the verdict stricter,
never milder.
"""
