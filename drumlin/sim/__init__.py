"""The simulator: the real decisions of thousands of nodes on virtual time, from one seed.

How it works. The frontier's rules, the memory engine, dispatcher, granting, settling, node registry, the calls of
nodes, the law of contact, the node's loop, its client, outbox and journal are the real ones. What is made up is around
them: time, networks, disks and the engine's servers (`machines/`), and sites (`web`, after `figures` of the real web).
All chance comes from the seed, so the same scenario gives the same events, one by one.

Where to read. `scenario` is what is simulated, `simulation` runs it; `machines.node` and `machines.coordinator` are who
takes part. `faults` says what can go wrong, and `striking` does it. `checking/` has the invariants, which are checked
all the time. `measuring` counts. `running` runs a scenario and tells what came of it, `shrinking` makes a violation
small, `recalling` says what led to it, and `plot` draws.

Invariants: nothing here reads a real clock, draws a number that is not from the seed, or depends on the order of a set.

Limits: pages are not parsed and nothing is written to a real disk, so parsers and files are not tested here. Messages
are not HTTP. CPU time is not simulated: a coordinator is never slow because it has much to do.
"""
