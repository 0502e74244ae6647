"""What stands behind a batch's header: its records, compressed or not. Batches are opened here, and built."""
