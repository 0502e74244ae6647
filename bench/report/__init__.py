"""Results: kept as JSON, shown as tables and as a chart."""
