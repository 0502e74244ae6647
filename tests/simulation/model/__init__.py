"""The simulated clusters: brokers, network, clock; held against real ones."""
