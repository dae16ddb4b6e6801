"""The engine on Redis or Valkey, one server or a cluster, shared by many coordinators. Read `engine` first.

The folder `lua` is the frontier itself: each call on a shard runs one of its functions, and so is atomic; its
`layout.lua` explains every key. `records` is the Python side of these layouts; `commands` builds the calls of the
functions. `client` and `topology` find and reach the servers, `founding` creates a frontier, `check` says what is wrong
with a server, `lists` tells hosts and dead letters a page at a time, `keeping` and `filling` move a frontier to another
engine and from one, `contents` finds duplicate contents, and `address` reads `redis://` addresses.
"""
