"""drumlin: a distributed web crawler. One command on one machine, the same program on a fleet."""

__version__ = "0.1.0"
