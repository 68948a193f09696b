"""Where values come from: tool profiles, sources, and how a value is found in them."""
