"""Integrations: each module plugs the guard into one package, which is imported on first use."""
