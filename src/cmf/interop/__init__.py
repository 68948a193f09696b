"""Other forms of a conversation: agent threads and CPEX."""
