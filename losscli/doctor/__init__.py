"""Whether builds and benchmarks work here and can be trusted; ``probes`` lists all probes."""
