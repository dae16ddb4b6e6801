"""Dead letters for people: listed, counted by cause and by host, queued again or dropped."""

from __future__ import annotations

from collections.abc import Callable

from drumlin.access.tokens import Permission
from drumlin.api.calls.figures import Figures
from drumlin.api.explaining.causes import cause
from drumlin.api.messages.people import (
    Changed,
    DeadLetterGroup,
    DeadLetterGroups,
    DeadLettersChange,
    DeadLettersQuery,
    DeadLettersView,
    GroupsQuery,
    dead_letter_view,
)
from drumlin.api.routing import Call, Route
from drumlin.coordinator import letters
from drumlin.coordinator.letters import LETTERS_OF_HOST_MAX
from drumlin.engines.base import Engine
from drumlin.model import KINDS, DeadLetter, GroupPlace, LetterPlace
from drumlin.protocol import paths
from drumlin.urls import by_host, canonical, identities, identity

BYTES_MAX = 16 * 1024 * 1024
INVALID_SHOWN_MAX = 100
"""How many of the texts that are no web addresses an answer names."""


class DeadLetterCalls:
    """The calls about dead letters."""

    def __init__(self, engine: Engine, figures: Figures, work_may_have_come: Callable[[], None]) -> None:
        self._engine = engine
        self._figures = figures
        self._work_may_have_come = work_may_have_come

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path=paths.DEAD_LETTERS,
                summary="URLs given up",
                answer=self.dead_letters,
                permission=Permission.READ,
                takes=DeadLettersQuery,
                gives=DeadLettersView,
            ),
            Route(
                method="GET",
                path=paths.DEAD_LETTER_GROUPS,
                summary="How many URLs were given up, by cause, or by cause and host",
                answer=self.groups,
                permission=Permission.READ,
                takes=GroupsQuery,
                gives=DeadLetterGroups,
            ),
            *(
                Route(
                    method="POST",
                    path=path,
                    summary=summary,
                    answer=answer,
                    permission=Permission.OPERATE,
                    takes=DeadLettersChange,
                    gives=Changed,
                    body_bytes_max=BYTES_MAX,
                    writes=f"dead_letters.{verb}",
                )
                for verb, path, summary, answer in (
                    ("retry", paths.RETRY_DEAD_LETTERS, "Queue dead letters again", self.retry),
                    ("drop", paths.DROP_DEAD_LETTERS, "Count dead letters as done", self.drop),
                )
            ),
        ]

    async def dead_letters(self, call: Call, query: DeadLettersQuery) -> DeadLettersView:
        found = await self._letters(query.kind, query.host, query.limit, _letter_place(query.after))
        more = len(found) == query.limit
        return DeadLettersView(
            [dead_letter_view(letter) for letter in found], _written(found[-1].place) if more else ""
        )

    async def groups(self, call: Call, query: GroupsQuery) -> DeadLetterGroups:
        if query.by == "host":
            return await self._groups_by_host(query)
        counts = (await self._figures.totals(call.now)).group("dead.")
        wanted = {kind: urls for kind, urls in counts.items() if urls and query.kind in ("", kind)}
        found = [DeadLetterGroup(kind, cause(kind), urls) for kind, urls in wanted.items()]
        return DeadLetterGroups(sorted(found, key=lambda group: (-group.urls, group.kind)))

    async def _groups_by_host(self, query: GroupsQuery) -> DeadLetterGroups:
        kind, after = KINDS.get(query.kind), _group_place(query.after)
        if query.kind and kind is None:
            return DeadLetterGroups([])
        found = await self._engine.dead_groups_all(kind=kind, after=after, limit=query.limit)
        groups = [DeadLetterGroup(one.kind, cause(one.kind), one.letters, one.host) for one in found]
        return DeadLetterGroups(groups, _written(found[-1].place) if len(found) == query.limit else "")

    async def retry(self, call: Call, change: DeadLettersChange) -> Changed:
        changed = await letters.revive(self._engine, await self._chosen(change), call.now)
        self._work_may_have_come()
        return Changed(changed, _invalid(change))

    async def drop(self, call: Call, change: DeadLettersChange) -> Changed:
        return Changed(await letters.drop(self._engine, await self._chosen(change)), _invalid(change))

    async def _chosen(self, change: DeadLettersChange) -> list[DeadLetter]:
        """The dead letters that match every part of the selection."""
        if not change.urls:
            return await self._letters(change.kind, change.host, change.limit)
        urls = [url for href in change.urls if (url := canonical(href))]
        named = set(identities(urls))
        chosen: list[DeadLetter] = []
        for host in by_host(urls):
            if change.host in ("", host):
                found = await self._letters(change.kind, host, LETTERS_OF_HOST_MAX)
                chosen += [letter for letter in found if identity(letter.url) in named]
        return chosen

    async def _letters(self, kind: str, host: str, limit: int, after: LetterPlace | None = None) -> list[DeadLetter]:
        wanted = KINDS.get(kind)
        if kind and wanted is None:
            return []
        return await self._engine.dead_letters_all(kind=wanted, host=host, after=after, limit=limit)


def _written(place: LetterPlace | GroupPlace) -> str:
    """A place as a cursor. None of its parts contains a space."""
    return " ".join(map(str, place))


def _letter_place(cursor: str) -> LetterPlace | None:
    """The place of a letter that a cursor means; None for an empty one."""
    if not cursor:
        return None
    kind, host, number = cursor.split(" ")
    return kind, host, int(number)


def _group_place(cursor: str) -> GroupPlace | None:
    """The place of a group that a cursor means; None for an empty one."""
    if not cursor:
        return None
    number, kind, host = cursor.split(" ")
    return int(number), kind, host


def _invalid(change: DeadLettersChange) -> list[str]:
    return [href for href in change.urls if canonical(href) is None][:INVALID_SHOWN_MAX]
