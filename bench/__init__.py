"""Measurements against peers: same data, same run, interleaved rounds. Run with `make bench` or `make bench-quick`."""
