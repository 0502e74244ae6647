"""The data types of an audit, in modules by who needs them. No I/O."""
