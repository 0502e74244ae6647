"""The results of a run, which are saved as JSON, and shown as tables and as a chart."""
