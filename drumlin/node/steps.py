"""Redirects from a URL to itself: a server may insist on its own spelling of a URL, which to us is the same URL.

`/q?a=1&b=2` leads to `/q?b=2&a=1`, `/~u` to `/%7Eu`. Canonical forms decide what is the same, so such a target is no
new URL for the frontier; it is asked for in its own spelling, under the same lease and a delay later, like any contact.
Each spelling is asked for once: what leads to one that was asked is a loop.
"""

from __future__ import annotations

from drumlin.http.headers import location_of
from drumlin.protocol import Assignment
from drumlin.urls import canonical, spelled


class Step(Assignment):
    """A URL of a lease that is asked for once more, as `asks`; `asked` are the spellings before."""

    asks: str = ""
    asked: tuple[str, ...] = ()


def asked_url(task: Assignment) -> str:
    """What to ask the host for."""
    return task.asks if isinstance(task, Step) else task.url


def next_step(head: bytes, task: Assignment, redirects_max: int) -> Step | None:
    """What to ask for next when a redirect, whose header block is `head`, leads to another spelling of its URL. None
    when it leads anywhere else, to what was asked already, or after too many redirects."""
    if len(task.redirects) >= redirects_max:
        return None
    asks = asked_url(task)
    location = location_of(head)
    target = spelled(location, asks) if location else None
    before = (*task.asked, asks) if isinstance(task, Step) else (asks,)
    if target is None or target in before or canonical(target) != task.url:
        return None
    fields = {name: getattr(task, name) for name in Assignment.__struct_fields__}
    fields["redirects"] = (*task.redirects, asks)
    return Step(**fields, asks=target, asked=before)
