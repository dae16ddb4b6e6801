"""A local fleet: real coordinators, nodes and a real Redis Cluster on one machine, for trying it out and for tests.

How it works. `founding` writes the plan of a fleet into its directory, `up` starts the supervisor, a process of its own
(`supervisor`). That starts everything else (`children`, `cluster`), starts again what dies, and writes the list of its
processes to `fleet.json` (`layout`). `up.down` ends them all, also if the supervisor is gone (`endings`, `marks`).
While a fleet is down, a command may run its Redis for itself (`at_rest`). Whoever starts or ends processes holds the
fleet's lock. Read `supervisor` first.

Invariants
- Everything of a fleet is in its directory. Secrets are readable by their owner only, and are on no command line.
- Only processes that the fleet has started are signalled. A process number may be given to another process, so the
  start time is compared, and the signal goes through a pidfd, which always means the same process.
- A fleet that was taken down or killed goes on when it is brought up again.
"""
