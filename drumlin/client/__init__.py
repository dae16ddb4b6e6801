"""Talking to a coordinator, for the command line and for programs.

`remote` sends plain requests over HTTP(S) or a Unix socket. Every failure is a `CoordinatorError` with one sentence and
a hint, and no call waits longer than its timeout. Several addresses are tried in order until one answers; an answer
that refuses is not tried elsewhere.

Nodes have a client of their own (`drumlin.node.calling.client`), which runs on the loop that fetches pages and repeats
its calls.
"""
