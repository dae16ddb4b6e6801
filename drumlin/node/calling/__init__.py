"""Talking to coordinators: one client for all calls, heartbeats, and the time that coordinators share.

`client` sends, repeats and signs calls, and finds another coordinator when one does not answer; `answers` tells a
coordinator's answer from that of something in between. `parties` has who talks: the coordinators that are known, and
how a node proves who it is. `pulse` beats, and `coordinator_time` knows the coordinators' time. `wires` is all that the
node's loop uses of this package and of the fetcher. Begin with `wires`, then `client`.

Nothing is sent twice without being asked for: a call that may be repeated says for how long.
"""
