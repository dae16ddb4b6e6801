"""Removal from an engine: hosts and URLs, contents, where others' URLs were found, and small values of the crawl."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from drumlin.engines.base import Engine
from drumlin.engines.kept import KeptHost, KeptTask, KeptValue, Section
from drumlin.frontier.backoff import dead_counter
from drumlin.lifecycle.removal.counts import Counts
from drumlin.lifecycle.removal.targets import Targets
from drumlin.lifecycle.removal.tombstones import KEY, TABLE
from drumlin.model import FailureKind, Task
from drumlin.urls import domain_of, identities, identity

Scrub = Callable[[bytes, Targets], bytes | None]
"""Makes the new value of an entry, which may name the removed; None if the entry goes."""


def goes(value: bytes, targets: Targets) -> bytes | None:
    """An entry that names the removed goes."""
    return None if targets.names(value) else value


async def remove_from(
    engine: Engine, targets: Targets, scrubs: Mapping[str, Scrub], now: float, *, dry_run: bool
) -> Counts:
    """Remove everything, or only count. `scrubs` says what becomes of values that name the removed, by their tables or,
    for values in no table, by their keys; others are kept and counted. Nobody else may use the engine."""
    counts = Counts()
    hosts = [*targets.hosts, *[one async for one in _hosts_of_domains(engine, targets)]]
    wanted: dict[str, list[str] | None] = dict.fromkeys(hosts)
    wanted.update({host: urls for host, urls in targets.urls_of().items() if host not in wanted})
    for host, urls in wanted.items():
        await _remove_host(engine, host, urls, now, counts, dry_run=dry_run)
    for domain in _domains(wanted, targets):
        contents, sketches = await engine.remove_contents(domain, targets.covers, dry_run=dry_run)
        counts.contents += contents
        counts.sketches += sketches
    await _forget_origins(engine, targets, counts, dry_run=dry_run)
    await _scrub_values(engine, targets, scrubs, counts, dry_run=dry_run)
    return counts


async def _hosts_of_domains(engine: Engine, targets: Targets) -> AsyncIterator[str]:
    """The hosts of removed domains. Names are in the order of their beginnings, so all are looked at."""
    if not targets.domains:
        return
    found = [
        one.host
        async for page in engine.read_kept(Section.HOSTS)
        for one in page
        if isinstance(one, KeptHost) and domain_of(one.host) in targets.domains
    ]
    for host in found:
        yield host


async def _remove_host(
    engine: Engine, host: str, urls: Sequence[str] | None, now: float, counts: Counts, *, dry_run: bool
) -> None:
    shard = engine.shard_of(host)
    if urls is None:
        counts.notes += bool(await engine.host_note(shard, host))
    # First they count as done, so the counters of their kinds, which people see, become less in the same step.
    dropped = 0 if dry_run else await _drop_letters(engine, host, urls)
    removed = await engine.remove(shard, host, urls, now, dry_run=dry_run)
    counts.hosts += removed.hosts
    counts.queued += removed.queued
    counts.scheduled += removed.scheduled
    counts.dead_letters += removed.dead + dropped
    counts.done += removed.done - dropped


async def _drop_letters(engine: Engine, host: str, urls: Sequence[str] | None) -> int:
    """Count the dead letters of a host, or of some of its URLs, as done; returns how many."""
    pages = None if urls is None else set(identities(urls))
    dropped, after = 0, None
    while letters := await engine.dead_letters_all(host=host, after=after):
        after = letters[-1].place
        of_kinds: dict[FailureKind, list[str]] = {}
        for letter in letters:
            if pages is None or identity(letter.url) in pages:
                of_kinds.setdefault(letter.kind, []).append(letter.url)
        for kind, mine in of_kinds.items():
            dropped += await engine.drop(engine.shard_of(host), mine, counter=dead_counter(kind))
    return dropped


def _domains(hosts: Mapping[str, object], targets: Targets) -> list[str]:
    """The domains under which contents of these hosts may be kept. Lists of public suffixes change, so a content may be
    under another part of its host's name than it would be today."""
    names = dict.fromkeys(targets.domains)
    for host in hosts:
        parts = host.partition(":")[0].split(".")
        names.update(dict.fromkeys([domain_of(host), *(".".join(parts[at:]) for at in range(len(parts)))]))
    return list(names)


# Where others' URLs were found


async def _forget_origins(engine: Engine, targets: Targets, counts: Counts, *, dry_run: bool) -> None:
    for section in (Section.QUEUED, Section.SCHEDULED, Section.DEAD):
        async for page in engine.read_kept(section):
            changed: dict[int, list[KeptTask]] = {}
            for one in page:
                if isinstance(one, KeptTask) and not targets.covers(one.task.url) and _leads_back(one.task, targets):
                    kept = msgspec.structs.replace(one, task=_without_origin(one.task, targets))
                    changed.setdefault(engine.shard_of(one.host), []).append(kept)
            for shard, tasks in changed.items():
                counts.origins += len(tasks)
                if not dry_run:
                    await engine.rewrite(shard, tasks)


def _leads_back(task: Task, targets: Targets) -> bool:
    return targets.covers(task.found_on) or any(targets.covers(url) for url in task.redirects)


def _without_origin(task: Task, targets: Targets) -> Task:
    found_on = "" if targets.covers(task.found_on) else task.found_on
    return msgspec.structs.replace(task, found_on=found_on, redirects=tuple(targets.without(task.redirects)))


# Values


async def _scrub_values(
    engine: Engine, targets: Targets, scrubs: Mapping[str, Scrub], counts: Counts, *, dry_run: bool
) -> None:
    found = [
        one
        async for page in engine.read_kept(Section.VALUES)
        for one in page
        if isinstance(one, KeptValue) and one.table != TABLE and (one.table or one.key) != KEY
    ]
    for one in found:
        # Some tables come in families: `owed.` and the name of a segment.
        family = "".join(one.table.partition(".")[:2]) if one.table else one.key
        scrub = scrubs.get(family)
        if scrub is None:
            counts.kept_settings += targets.names(one.key) or targets.names(one.value)
            continue
        value = None if one.table and targets.names(one.key) else scrub(one.value, targets)
        if value != one.value:
            counts.values += 1
            if not dry_run:
                await _put(engine, one, value)


async def _put(engine: Engine, one: KeptValue, value: bytes | None) -> None:
    if not one.table:
        await engine.put_meta(one.key, value or b"")
    elif value is None:
        await engine.delete_entries(one.table, [one.key])
    else:
        await engine.put_entries(one.table, {one.key: value})
