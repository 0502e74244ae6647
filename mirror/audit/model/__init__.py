"""The data types of an audit, one module for each part of it. No I/O."""
