"""Bodies judged for another proxy, and sent nowhere."""
