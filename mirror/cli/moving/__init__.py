"""Commands for moving producers and consumers from one cluster to the other."""
