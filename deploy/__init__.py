"""What is needed to run the mirror beside the mirror itself."""
