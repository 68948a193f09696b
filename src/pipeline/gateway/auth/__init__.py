"""Who asks: keys, tokens of issuers, headers of a proxy."""
