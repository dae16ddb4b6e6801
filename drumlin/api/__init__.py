"""A coordinator on HTTP. Read `app` first: one ASGI application for nodes, for single workers and for people.

- `routing`: the table of routes; `openapi` makes the contract from it, and `reference` the page of all calls.
- `browsers`: what is asked of requests that a browser may have sent, because web pages make browsers send them.
- `bodies`: reads what strangers send, within limits, and answers them; `wire` has the limits below that; `plainly` says
  what is wrong with a message; `request_log` has the ids of requests, and logs those that were refused.
- `gate`: how many requests each sender may make, and how those who misbehave are kept out.
- `calls/`: one file for each group of callers; `messages/`: what they are told.
- `intake/`: pages and bundles of workers that cannot write to the store.
- `traces`: which URLs are traced, and what is told of them when they are given out and settled.
- `explaining/`: why a URL or a crawl is where it is, in words.
- `listening`, `unix_socket`: where a coordinator can be reached; `watch`: whether engine and store still answer.

Invariants: a body never takes more memory than its route permits; whatever is wrong with a request, its sender gets a
`Refused` with a code, a sentence and a hint.
"""
