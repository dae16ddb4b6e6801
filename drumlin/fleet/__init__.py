"""A local fleet: real coordinators, nodes and a real Redis Cluster on one machine, for trying it out and for tests.

How it works: `up` writes the plan of a fleet into its directory and starts the supervisor, a process of its own, which
starts everything else, starts again what dies, and writes down who is at work in `fleet.json`. `down` ends them all,
also when the supervisor is gone. `remote` asks a coordinator, of this fleet or any other.

Invariants:
- everything of a fleet is in its directory; secrets are readable by their owner only and on no command line;
- a process is signalled only if it is the one that was started: its start time is compared, and through a pidfd no
  other can take its number in between;
- a fleet that was taken down, or killed, goes on when it is brought up again.
"""
