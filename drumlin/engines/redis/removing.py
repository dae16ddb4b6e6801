"""Removal on request from a frontier on Redis (`drumlin.engines.base.Engine.remove`): `lua/removing.lua` does the work.

Redis's append-only file has what was removed until it is rewritten (BGREWRITEAOF), which is the operator's to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drumlin.engines.kept import KeptTask, mark_of
from drumlin.engines.paging import KINDS_IN_ORDER
from drumlin.engines.redis.contents import DIGEST_BYTES, entry_url, nearest_url, read_log, without_nearest
from drumlin.engines.redis.keeping import SLICE, RedisKeeping
from drumlin.engines.redis.records import as_string, attempt_mark, encode, seen_mark, short_url, write_record
from drumlin.model import RemovedURLs, TaskState, TaskStory


class RedisRemoving(RedisKeeping):
    """These calls of `drumlin.engines.base.Engine`, for the engine to inherit."""

    async def story(self, shard: int, url: str) -> TaskStory | None:
        raise NotImplementedError

    async def remove(
        self, shard: int, host: str, urls: Sequence[str] | None, now: float, *, dry_run: bool = False
    ) -> RemovedURLs:
        if urls is None:
            message = encode((now, host, list(KINDS_IN_ORDER), dry_run))
            (counts,) = await self._client.run([self._shards.call("remove_host", shard, message)])
            return RemovedURLs(*counts)
        stories = {seen_mark(url): (url, await self.story(shard, url)) for url in urls}
        if dry_run:
            return _counted([story for _, story in stories.values() if story is not None])
        kept = [
            (short_url(story.task.url if story.task is not None else url, host), mark)
            for mark, (url, story) in stories.items()
            if story is not None
        ]
        (counts,) = await self._client.run([self._shards.call("remove_urls", shard, encode((now, host, kept)))])
        return RemovedURLs(*counts)

    async def rewrite(self, shard: int, kept: Sequence[KeptTask]) -> None:
        written = [(one.host, one.state.value, as_string(_record(one))) for one in kept]
        await self._client.run([self._shards.call("rewrite", shard, encode(written))])

    async def remove_contents(
        self, domain: str, is_removed: Callable[[str], bool], *, dry_run: bool = False
    ) -> tuple[int, int]:
        shard, key = self.shard_of(domain), b"e" + domain.encode()
        gone: set[bytes] = set()
        changed: dict[bytes, bytes] = {}
        cursor = b"0"
        while True:
            ((cursor, fields),) = await self._read(shard, ("HSCAN", key, cursor, "COUNT", SLICE))
            for digest, raw in zip(fields[::2], fields[1::2], strict=True):
                if is_removed(entry_url(raw)):
                    gone.add(digest)
                elif is_removed(nearest_url(raw)):
                    changed[digest] = without_nearest(raw)
            if cursor == b"0":
                break
        (log,) = await self._read(shard, ("GET", b"i" + domain.encode()))
        sketches = read_log(log or b"")
        kept = [sketch + digest for digest, sketch in sketches if digest not in gone]
        if not dry_run and (gone or changed):
            pairs = [as_string(part) for pair in changed.items() for part in pair]
            written = (domain, [as_string(one[:DIGEST_BYTES]) for one in gone], pairs, as_string(b"".join(kept)))
            await self._client.run([self._shards.call("remove_contents", shard, encode(written))])
        return len(gone), len(sketches) - len(kept)

    async def expunge(self) -> None:
        calls = [self._shards.call("forget_calls", shard) for shard in range(self.shard_count)]
        await self._client.run(calls)


def _counted(stories: Sequence[TaskStory]) -> RemovedURLs:
    states = [story.state for story in stories]
    queued = states.count(TaskState.QUEUED) + states.count(TaskState.LEASED)
    others = (states.count(one) for one in (TaskState.SCHEDULED, TaskState.DEAD, TaskState.DONE))
    return RemovedURLs(queued, *others)


def _record(kept: KeptTask) -> bytes:
    task = kept.task
    attempt = attempt_mark(task.id, mark_of(task.url), kept.attempt_id) if kept.attempt_id else 0
    return write_record(task, kept.host, kept.first_failed, attempt, kept.attempt_id)
