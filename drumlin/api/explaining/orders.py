"""Orders about retention and holds, as entries of the audit log: they are given where the store is, not to a
coordinator, and noted in the store itself (`drumlin.lifecycle.book`)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from drumlin.access.audit import AuditEntry
from drumlin.access.tokens import Role
from drumlin.errors import DrumlinError
from drumlin.lifecycle.book import DONE, REMOVAL, Order, open_book
from drumlin.store.files import StoreFiles

log = logging.getLogger("drumlin.coordinator")


def orders_in(files: StoreFiles) -> Callable[[], list[AuditEntry]]:
    """What tells the orders of a store. It blocks; it tells none if the store cannot be read."""
    book = open_book(files)

    def told() -> list[AuditEntry]:
        try:
            # Newest first: those of the same moment stay in this order.
            return [_entry(order) for order in reversed(book.orders()) if not _is_told_elsewhere(order)]
        except (DrumlinError, OSError) as wrong:
            log.warning("the audit log lacks what was ordered for %s: %s", files, wrong)
            return []

    return told


def _is_told_elsewhere(order: Order) -> bool:
    """The end of a removal is in the audit log of the engine too, with its numbers."""
    return order.action == REMOVAL and order.outcome == DONE


def _entry(order: Order) -> AuditEntry:
    return AuditEntry(order.at, "", order.by, Role.OPERATOR, order.action, order.target, order.outcome, order.user)
