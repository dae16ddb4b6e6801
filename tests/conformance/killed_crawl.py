"""A child process for the kill -9 test: crawls an endless imaginary web and prints what the engine acknowledged.

Each line is a JSON array, written after the call returned: ["added", urls], ["leased", urls] or
["settled", [[url, state, capture id], …]].
"""

from __future__ import annotations

import sys

import msgspec

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.model import FailureKind, Lease, NewURLs, Settled, Settlement, TaskState

LINKS_PER_ROUND = 40
HOSTS = 7
ENDS = (TaskState.DONE, TaskState.DONE, TaskState.SCHEDULED, TaskState.DEAD)


def acknowledge(*event: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
    sys.stdout.buffer.flush()


def link(number: int) -> NewURLs:
    host = f"host-{number % HOSTS}.example"
    return NewURLs(host, [f"http://{host}/{number}"], number % 10)


def settle(engine: BlockingEngine, leases: list[Lease], now: float) -> None:
    settlements, acknowledged = [], []
    for lease in leases:
        parts = []
        for task in lease.tasks[::2]:
            end, capture = ENDS[task.id % len(ENDS)], f"{lease.lease_id}/{task.id}"
            kind, counts = FailureKind.DNS, {"settled": 1}
            parts.append(Settled(task.id, task.url, end, capture.encode(), now + 2, kind, counts=counts))
            acknowledged.append((task.url, end, capture))
        settlements.append(Settlement(lease.host, lease.lease_id, parts, release=True, note=lease.lease_id.encode()))
    engine.settle(0, settlements, now)
    acknowledge("settled", acknowledged)


def crawl(engine: BlockingEngine, first: int) -> None:
    number, now = first, float(first)
    while True:
        now += 1.0
        links = [link(number + offset) for offset in range(LINKS_PER_ROUND)]
        number += LINKS_PER_ROUND
        engine.add(0, links, now)
        acknowledge("added", [url for new in links for url in new.urls])
        engine.expire_all(now)
        leases = engine.lease(0, "node", f"{now}", now, until=now + 5, hosts_max=3, urls_max=30, urls_per_host=10)
        acknowledge("leased", [task.url for lease in leases for task in lease.tasks])
        settle(engine, leases, now)


if __name__ == "__main__":
    crawl(open_blocking(f"rocksdb:{sys.argv[1]}"), int(sys.argv[2]))
