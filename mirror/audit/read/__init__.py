"""One side's log, read and told batch by batch. No Spark."""
