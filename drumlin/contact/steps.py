"""Redirects from a URL to itself: a server may insist on its own spelling of a URL, which to us is the same URL, or on
a cookie that it sets with the redirect, or with one on the way.

`/q?a=1&b=2` leads to `/q?b=2&a=1`, `/~u` to `/%7Eu`. Identities decide what is the same, so such a target is no
new URL for the frontier; it is asked for in its own spelling, under the same lease and a delay later, like any contact.
Each spelling is asked for once with the same cookies: what leads to one that was asked so is a loop.

A gate is another URL of the host: `/page` leads to `/gate`, which sets a cookie and leads back. `/page` is settled by
then, so it is asked for again, with the cookie, under the lease and as the end of `/gate`, but stored as what it is.
"""

from __future__ import annotations

from drumlin.contact.cookies import Cookies
from drumlin.http.headers import location_of
from drumlin.protocol import Assignment
from drumlin.urls import canonical, host_of, identities, identity


class Step(Assignment):
    """A URL of a lease that is asked for once more, as `asks`; `asked` are the spellings before, each with the cookies
    that were sent. `page_url` is set when that is not the URL of the lease, but one that led to it."""

    asks: str = ""
    asked: tuple[tuple[str, str], ...] = ()
    page_url: str = ""


def asked_url(task: Assignment) -> str:
    """What to ask the host for."""
    return task.asks if isinstance(task, Step) else task.url


def page_url(task: Assignment) -> str:
    """What the answer is stored as."""
    return task.url if not isinstance(task, Step) else task.page_url or task.url


def cookie_for(task: Assignment, cookies: Cookies) -> str:
    """The cookies to send with it."""
    return cookies.header(asked_url(task), task.redirects)


def next_step(head: bytes, sent: str, task: Assignment, redirects_max: int, cookies: Cookies) -> Step | None:
    """What to ask for next when a redirect, whose header block is `head`, leads to the same URL, or back to one that
    led to it: in another spelling, or with other cookies than those that were `sent`. None when it leads anywhere else,
    to what was asked already, or after too many redirects."""
    asks = asked_url(task)
    location = location_of(head)
    target = canonical(location, asks) if location else None
    if target is None or len(task.redirects) >= redirects_max:
        return None
    known = identity(target)
    before_gate = "" if known == identity(task.url) else _led_here(known, task)
    if before_gate is None:
        return None
    before = (*(task.asked if isinstance(task, Step) else ()), (asks, sent))
    fields = {name: getattr(task, name) for name in Assignment.__struct_fields__}
    fields["redirects"] = (*task.redirects, asks)
    step = Step(**fields, asks=target, asked=before, page_url=before_gate)
    cookie = cookie_for(step, cookies)
    # What led here was asked for without the cookies that were set since, if there are any.
    return None if (target, cookie) in before or (before_gate and not cookie) else step


def _led_here(known: str, task: Assignment) -> str | None:
    """The URL of this identity by way of which the task was found, if it is of the same host, whose lease we have."""
    for url, one in zip(task.redirects, identities(task.redirects), strict=True):
        if one == known and host_of(url) == host_of(task.url):
            return url
    return None
