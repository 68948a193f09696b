"""What a message is: its parts, its extensions, requests and responses, ids and digests."""
