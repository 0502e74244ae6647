"""What mirroring costs, side by side: a byte relay, ``mirror``, MirrorMaker 2 and MirrorMaker 1 on the same data.

``python -m bench`` runs it; ``plan`` says what it obeys in the environment.
"""
