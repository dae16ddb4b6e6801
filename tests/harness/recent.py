"""A coordinator that has stored nothing for others lately."""

from __future__ import annotations

from drumlin.store.tables.lookup import StoredFetch


class NothingRecent:
    """What `StoreAnswers` asks for beside the store."""

    def recent_of_page(self, page: str) -> list[StoredFetch]:
        return []

    def recent_of_host(self, host: str) -> list[StoredFetch]:
        return []
