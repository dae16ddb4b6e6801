"""What the answer to a request for a page means: for its host, and for what is asked next."""

from __future__ import annotations

from drumlin.contact.actions import FetchPage, SettlePage
from drumlin.contact.backing_off import BackingOff, silent, unreached
from drumlin.contact.desk import Desk
from drumlin.contact.hosts import HostWork, scheme_of
from drumlin.contact.steps import Step, asked_url, next_step
from drumlin.contact.terms import Answer, Moment
from drumlin.http.headers import header_fields
from drumlin.http.retry_after import is_number
from drumlin.protocol import NAMED_BY_ROBOTS, Assignment, failure_of_status, is_redirect

HSTS_MAX_AGE_S = 365 * 86400.0
HSTS_RENEW_S = 3600.0
"""A date that moves by less is not worth a new note."""
HSTS = "strict-transport-security"
_HSTS_BYTES = HSTS.encode()
SITEMAP_PARTS_DEPTH = 1
"""The parts of a sitemap are one link away from it."""


class Pages:
    """Makes of an answer what follows from it."""

    def __init__(self, desk: Desk, backing_off: BackingOff) -> None:
        self._desk = desk
        self._backing_off = backing_off

    def arrived(self, fetch: FetchPage, answer: Answer, now: Moment) -> None:
        desk, host, task = self._desk, fetch.host, fetch.task
        answered_before = host.last_contact_answered
        desk.end(fetch, answer)
        unheard = host.went_down_with_connection(answer.stale, desk.settings.per_host)
        again = task if unheard else self._next_step(answer, task, now)
        if again is not None:
            desk.ask_again(host, again)
        elif unreached(answer):
            host.tasks.appendleft(task)
            self._backing_off.begin(host, scheme_of(task.url), answer.failure, answer.error, now)
        elif silent(answer) and not answered_before:
            self._backing_off.suspect(host, task, answer, now)
        else:
            self._settle(host, task, answer, now)

    def _settle(self, host: HostWork, task: Assignment, answer: Answer, now: Moment) -> None:
        asked_s = 0.0
        if failure_of_status(answer.status):
            # A site that asks to be left alone means it, also if the rest of its answer got lost.
            asked_s = self._backing_off.slow_down(host, answer, now)
        elif not answer.failure:
            self._heed_good(host, task, answer, now)
        host.unsettled += 1
        self._desk.actions.append(SettlePage(host, task, answer, now.wall, asked_s))

    def _heed_good(self, host: HostWork, task: Assignment, answer: Answer, now: Moment) -> None:
        """An answer came as it should: go a little faster if the host was slowed down, and remember if it wants to be
        asked over HTTPS alone."""
        if host.slow_s:
            host.recover()
        if task.url.startswith("https:") and _HSTS_BYTES in (head := answer.response_headers()).lower():
            until = hsts_until(header_fields(head).get(HSTS, ""), now.wall)
            if abs(until - host.hsts_until) > HSTS_RENEW_S:
                host.hsts_until = until
                host.note_changed = True

    def _next_step(self, answer: Answer, task: Assignment, now: Moment) -> Step | None:
        """What to ask for again, when a redirect leads to the same URL."""
        cookies, redirect = self._desk.cookies, is_redirect(answer.status)
        if answer.failure or not (redirect or cookies.of_hosts):
            return None
        head = answer.response_headers()
        cookies.learn(head, asked_url(task), now.wall)
        if not redirect:
            return None
        return next_step(head, answer.cookie, task, self._desk.settings.redirects_max, cookies)


def may_be_sitemap(task: Assignment) -> bool:
    """Whether robots.txt names it, or it is called a sitemap and near enough to one that is. Such a file may be larger
    than the crawl's pages."""
    if task.found_on == NAMED_BY_ROBOTS:
        return True
    return task.depth == SITEMAP_PARTS_DEPTH and "sitemap" in task.url


def hsts_until(value: str, now: float) -> float:
    """Until when a Strict-Transport-Security header binds us; 0 when it does not."""
    for part in value.lower().split(";"):
        name, _, seconds = part.strip().partition("=")
        if name == "max-age" and is_number(seconds.strip('"')):
            age_s = min(float(seconds.strip('"')), HSTS_MAX_AGE_S)
            return now + age_s if age_s else 0.0
    return 0.0
