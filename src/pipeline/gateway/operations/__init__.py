"""What operators see and do: probes, metrics, reloads, records."""
