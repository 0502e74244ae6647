"""A run of the failure suite, from its plan to its report."""
