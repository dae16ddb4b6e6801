"""The exception by which a coordinator refuses a request; every refusal has this form."""

from __future__ import annotations


class Refused(Exception):
    """A request that is not served: an HTTP status, a code for programs, a sentence and a hint for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        *,
        retry_after_s: float | None = None,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.closes = closes
        """Close the connection after the answer: part of the request's body is still on its way and will not be
        read."""
        self.headers: list[tuple[bytes, bytes]] = []
        """Further headers of the answer."""

    def document(self) -> dict[str, dict[str, str]]:
        """The error as the API writes it."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}
