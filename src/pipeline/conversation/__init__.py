"""Conversations: their history, labels, and what earlier turns had already decided."""
