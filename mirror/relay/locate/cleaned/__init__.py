"""What log cleaners have left: which records both logs still have, and which are superseded by later ones."""
