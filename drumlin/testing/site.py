"""`Site`: one host of the bundled web while it is being filled, with what a crawl of it should do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from drumlin.testing.messages import Request, Response
from drumlin.testing.scripted import ScriptedWeb

STEMS = "bar cor dun fen gal har kel lim mor nor pel quar ros sel tor ulm ver wes yar zen".split()  # noqa: SIM905 - a list
ENDS = "a en ic or us et ing an el ow".split()  # noqa: SIM905 - reads better as a line than as twenty strings


class Site:
    """A host of a ScriptedWeb by its name. Methods that take a path return its URL."""

    def __init__(self, web: ScriptedWeb, host: str, chance: random.Random) -> None:
        self.web = web
        self.host = host
        self.chance = chance

    def url(self, path: str) -> str:
        return self.web.url(self.host, path)

    def page(self, path: str, *, links: Iterable[str] = (), head: str = "", body: str = "", **response: object) -> str:
        """Add a page with words of its own, which a crawler should fetch."""
        return self.answer(path, Response(body=self.html(path, links, head, body), **response))  # type: ignore[arg-type]

    def answer(self, path: str, answer: Response | Callable[[Request], Response]) -> str:
        """Add an answer that a crawler should get in the end."""
        self.web.expected.fetched.add(self.url(path))
        return self.web.respond(self.host, path, answer)

    def never(self, path: str, links: Iterable[str] = ()) -> str:
        """Add a page that exists and that a crawler should not request."""
        self.web.expected.never.add(self.url(path))
        return self.web.page(self.host, path, self.html(path, links))

    def dead(self, kind: str, path: str, answer: Response | Callable[[Request], Response]) -> str:
        """Add an answer on which a crawler should give up, with a failure of this kind."""
        self.web.expected.dead.setdefault(kind, set()).add(self.url(path))
        return self.web.respond(self.host, path, answer)

    def robots(self, text: str) -> None:
        self.web.respond(self.host, "/robots.txt", Response(body=text, content_type="text/plain"))

    def html(self, path: str, links: Iterable[str] = (), head: str = "", body: str = "") -> str:
        anchors = "".join(f'<li><a href="{link}">{self.words(2)}</a></li>\n' for link in links)
        prose = "".join(f"<p>{self.sentence()} {self.sentence()} {self.sentence()}</p>\n" for _ in range(6))
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{self.host} {path}</title>\n'
            f"{head}</head>\n<body>\n<h1>{self.words(4).capitalize()}</h1>\n{prose}{body}"
            f"<ul>\n{anchors}</ul>\n</body>\n</html>\n"
        )

    def words(self, count: int) -> str:
        return " ".join(self.word() for _ in range(count))

    def word(self) -> str:
        return "".join(self.chance.choices(STEMS, k=self.chance.randint(1, 2))) + self.chance.choice(ENDS)

    def sentence(self) -> str:
        return self.words(self.chance.randint(7, 15)).capitalize() + "."
