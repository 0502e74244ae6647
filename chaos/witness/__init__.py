"""What brokers, the group's coordinator and the kernel say of a fault, asked without the mirror."""
