"""Where a partition goes on: both logs found, read and compared."""
