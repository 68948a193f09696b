"""Serving processes: one, or several that share an address."""
