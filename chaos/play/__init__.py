"""One scenario played: its stage, its mirrors, and the operations of an act."""
