"""Events for Kafka: what a crawl stores and does, as messages that other programs consume.

Whoever stores rows produces their events: a node for its own segments, a coordinator for the bundles and pages that it
stores for others, and for what it tells of nodes and leases. Nothing is queued in memory until it is safe: events are
made from what is durable anyway, the segments of the tables (`rows`) and a small log of the coordinator (`told`). For
each of these a cursor file (`owed`) says how much of it the broker has confirmed. So a broker that is away costs no
further space, and a process that is killed goes on at its cursor. `sender` does the work; read it first.

Invariants:
- The cursor of a segment exists before readers can see the first of its rows, and is removed only when the broker has
  confirmed the last.
- A cursor never stands behind a message that is not confirmed. So every event is produced at least once; one that is
  produced again has the same id (`schema`).

Limits: what waits is bounded (`--events-max`); beyond that nothing more is fetched until the broker takes some of it.
Only `broker` imports the client library, and only where it is used. `seeds` reads URLs from a topic.
"""
