"""Sets of policies: their files, what they say about themselves, who signed them, and which one is in service."""
