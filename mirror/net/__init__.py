"""The only sockets: connections, receive buffers, and a cluster's brokers and leaders."""
