"""Fuzzing: bytes that no broker would send, into everything that reads bytes of brokers.

``make fuzz`` (not in CI) runs each target in a process of its own, guided by coverage with atheris if it is installed
(the extra ``fuzz``), else with Hypothesis, which is not guided; it says which. What an input must not do:

* raise anything but the exceptions that the code documents;
* take more processor time or memory than the target's bounds (``guard``);
* break a law, where there is one: round trips, two readers that agree, the compiled form that does what Python does.

``corpus/`` has a few inputs of each target, which ``test_corpus.py`` replays on every run of the tests.
"""
