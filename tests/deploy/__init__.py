"""What is in deploy/: linted, rendered, validated, and run as far as that needs no container engine."""
