"""JSON: strict bytes, objects that cannot change, and the base of all values."""
