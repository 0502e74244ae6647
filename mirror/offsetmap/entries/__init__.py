"""The records of the internal topic: each as it is read and written. Pure."""
