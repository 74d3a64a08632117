"""octavo beside other engines, on the same machine, model and workloads, in turn: `make bench-peers`."""
