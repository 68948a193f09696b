"""A run: views judged, effects applied, tiers checked, the outcome recorded and emitted."""
