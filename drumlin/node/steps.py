"""Redirects from a URL to itself: a server may insist on its own spelling of a URL, which to us is the same URL, or on
a cookie that it sets with the redirect.

`/q?a=1&b=2` leads to `/q?b=2&a=1`, `/~u` to `/%7Eu`. Identities decide what is the same, so such a target is no
new URL for the frontier; it is asked for in its own spelling, under the same lease and a delay later, like any contact.
Each spelling is asked for once with the same cookies: what leads to one that was asked so is a loop.
"""

from __future__ import annotations

from drumlin.http.headers import location_of
from drumlin.node.cookies import Cookies
from drumlin.protocol import Assignment
from drumlin.urls import canonical, identity


class Step(Assignment):
    """A URL of a lease that is asked for once more, as `asks`; `asked` are the spellings before, each with the cookies
    that were sent."""

    asks: str = ""
    asked: tuple[tuple[str, str], ...] = ()


def asked_url(task: Assignment) -> str:
    """What to ask the host for."""
    return task.asks if isinstance(task, Step) else task.url


def cookie_for(task: Assignment, cookies: Cookies) -> str:
    """The cookies to send with it."""
    return cookies.header(asked_url(task), task.redirects)


def next_step(head: bytes, sent: str, task: Assignment, redirects_max: int, cookies: Cookies) -> Step | None:
    """What to ask for next when a redirect, whose header block is `head`, leads to the same URL: in another spelling,
    or with other cookies than those that were `sent`. None when it leads anywhere else, to what was asked already, or
    after too many redirects."""
    asks = asked_url(task)
    location = location_of(head)
    target = canonical(location, asks) if location else None
    if target is None or identity(target) != identity(task.url) or len(task.redirects) >= redirects_max:
        return None
    before = (*(task.asked if isinstance(task, Step) else ()), (asks, sent))
    fields = {name: getattr(task, name) for name in Assignment.__struct_fields__}
    fields["redirects"] = (*task.redirects, asks)
    step = Step(**fields, asks=target, asked=before)
    return None if (target, cookie_for(step, cookies)) in before else step
