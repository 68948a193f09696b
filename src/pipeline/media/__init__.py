"""Media: fetched, checked and fitted to a model."""
