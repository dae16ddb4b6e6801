"""The redis engine against the conformance suite, on a server alone and on a cluster of three masters.

An engine "kept in a directory" is a namespace named after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.conformance.suite import EngineConformance
from drumlin.model import TaskState, TaskStory
from tests.harness.redis import redis_cluster, redis_server, url_of


class _StoryOfTheDone(TaskStory, frozen=True):
    """The redis engine does not remember the capture of a done URL; everything else must be the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskStory) and other.state is TaskState.DONE and other.task is None

    __hash__ = None  # type: ignore[assignment]


class _ForgetsCaptures(BlockingEngine):
    def story(self, *arguments: Any, **options: Any) -> TaskStory | None:
        told = self.run(self.engine.story(*arguments, **options))
        return _StoryOfTheDone(told.state, None) if told and told.state is TaskState.DONE else told


class RedisConformance(EngineConformance):
    """`servers` is the part of the URL that names the servers."""

    durable = True
    url: ClassVar[str]

    def open(self, directory: str) -> BlockingEngine:
        namespace = hashlib.sha256(directory.encode()).hexdigest()[:16]
        opened = open_blocking(self.url.replace("NAMESPACE", namespace), shard_count=2)
        return _ForgetsCaptures(opened.engine, opened._loop)


class TestSingleRedis(RedisConformance):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with redis_server(tmp_path_factory.mktemp("redis")) as server:
            cls.url = url_of(server, namespace="NAMESPACE")
            yield


class TestRedisCluster(RedisConformance):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def cluster(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with redis_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            cls.url = url_of(cluster.servers[1], namespace="NAMESPACE")
            yield
