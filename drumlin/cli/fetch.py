"""`drumlin fetch URL`: one page through the whole pipeline, each decision explained. Nothing is stored."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import line, results, write_json
from drumlin.cli.crawl import web_address
from drumlin.cli.help import Verb
from drumlin.config import CrawlConfig, Loaded, config_options
from drumlin.config.quantities import show_gap, show_size
from drumlin.errors import EXIT_OK, ConfigError, DrumlinError, SiteError

if TYPE_CHECKING:
    from drumlin.contact.actions import FetchPage, Settle
    from drumlin.contact.hosts import HostWork
    from drumlin.model import Capture
    from drumlin.node.single import SingleFetch
    from drumlin.pipeline import Pipeline

EXIT_NOT_FETCHED = 6
STEP_CHARS = 12
TEXT_SHOWN_CHARS = 300
LINKS_SHOWN = 10


class FetchFailed(DrumlinError):
    """The page was not fetched; the steps printed before say why."""

    exit_code = EXIT_NOT_FETCHED


@click.command("fetch", cls=Verb)
@click.argument("url")
@click.option("--text", is_flag=True, help="print the page's text, and nothing else")
@click.option("--html", is_flag=True, help="print the body as it is without its content encoding")
@click.option("--links", is_flag=True, help="print the links, one a line")
@config_options(
    "user_agent",
    "contact",
    "allow_private",
    "fetch_timeout",
    "connect_timeout",
    "body_bytes_max",
    "delay",
    "json",
    "color",
)
def command(loaded: Loaded, url: str, **parts: bool) -> int:
    """Fetch one page as a crawl would, and explain every decision on the way."""
    only = _only(loaded.process.json, [part for part, wanted in parts.items() if wanted])
    explained = Explained(loaded)
    try:
        explained.run(url)
    except FetchFailed as failed:
        explained.failure = str(failed)
        raise
    finally:
        if only is None:
            explained.show()
    if only is not None:
        explained.print_only(only)
    return EXIT_OK


def _only(as_json: bool, parts: list[str]) -> str | None:
    """The part of the page to print alone; ConfigError when two things are to be alone."""
    wanted = [*(["json"] if as_json and parts else []), *parts]
    if len(wanted) > 1:
        flags = " and ".join(f"--{name}" for name in wanted)
        raise ConfigError(f"{flags} cannot be given together.", "Each has something else printed; choose one.")
    return parts[0] if parts else None


class Explained:
    """The steps of one fetch, in order, as (step, what happened)."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._config: CrawlConfig = loaded.crawl
        self._asked = ""
        """The URL that is being asked for, as it was given or redirected to."""
        self._steps: list[tuple[str, str]] = []
        self._page: Capture | None = None
        self.failure = ""

    def show(self) -> None:
        if self._loaded.process.json:
            steps = [{"step": step, "says": says} for step, says in self._steps]
            page = _page_document(self._page) if self._page is not None else None
            write_json({"page": page, "failure": self.failure or None, "steps": steps})
            return
        console = results(self._loaded.process)
        for step, says in self._steps:
            line(console, f"{step:<{STEP_CHARS}} {says}", marked=step, indent=STEP_CHARS + 1)

    def print_only(self, part: str) -> None:
        """One part of the page, as it is, for a file or another program."""
        if self._page is None:
            return
        parts = {"text": self._page.text, "html": self._page.body, "links": "\n".join(_targets(self._page)).encode()}
        content = parts[part]
        end = b"" if part == "html" or not content or content.endswith(b"\n") else b"\n"
        sys.stdout.buffer.write(content + end)
        sys.stdout.buffer.flush()

    def say(self, step: str, says: str) -> None:
        self._steps.append((step, says))

    def run(self, href: str) -> None:
        from drumlin.node.main import contact_settings, make_fetcher
        from drumlin.node.single import SingleFetch

        url = web_address(href)
        fetcher = make_fetcher(self._config, 4)
        settings = contact_settings(self._config)
        try:
            self._follow(SingleFetch(settings, fetcher, on_page=self._say_allowed, on_denied=self._say_denied), url)
        finally:
            fetcher.close()

    def _follow(self, single: SingleFetch, url: str) -> None:
        """Fetch `url` and wherever it redirects to, politely."""
        from drumlin.model import Outcome
        from drumlin.urls import domain_of, host_of

        redirects: tuple[str, ...] = ()
        while True:
            host = host_of(url)
            self.say("url", f"{url} (host {host}, registrable domain {domain_of(host)})")
            self._asked = url
            arrival = single.run(url, redirects)
            result = arrival.result
            if result.outcome is Outcome.DENIED:
                agent = self._config.product_token
                raise FetchFailed(f"robots.txt does not let {agent} fetch {url}.", "It was not requested.")
            if arrival.capture is not None:
                self._decode(arrival.capture)
                self._say_fetched(arrival.capture)
            if result.outcome is Outcome.FETCHED and arrival.capture is not None:
                self._explain_page(arrival.capture)
                return
            if result.outcome is not Outcome.REDIRECTED:
                raise _failed(result.kind, result.error)
            redirects, url = (*result.redirect_chain, result.page), result.redirect_to
            self.say("redirect", f"to {url}")

    def _say_allowed(self, fetch: FetchPage) -> None:
        if fetch.url != self._asked:
            # The site insists on a spelling or a cookie of its own.
            self.say("redirect", f"to {fetch.url}")
        self._say_robots(fetch.host, fetch.url, "allows")

    def _say_denied(self, host: HostWork, action: Settle) -> None:
        from drumlin.contact.steps import asked_url

        self._say_robots(host, asked_url(action.task), "denies", action.error)

    def _say_robots(self, host: HostWork, url: str, verdict: str, because: str = "") -> None:
        robots = host.robots[url.partition(":")[0]]
        agent = self._config.product_token
        pace = f"; Crawl-delay {show_gap(robots.crawl_delay_s)}" if robots.crawl_delay_s else ""
        reason = robots.decision.reason
        rule = f" by {because}" if because not in ("", reason) else ""
        self.say("robots", f"robots.txt ({reason}) {verdict} {agent} this URL{rule}{pace}")

    def _decode(self, capture: Capture) -> None:
        try:
            self._pipeline().decode_body(capture)
        except SiteError as broken:
            raise _failed(broken.kind, broken.message) from broken

    def _say_fetched(self, capture: Capture) -> None:
        encoding = capture.headers.get("content-encoding", "identity")
        self.say(
            "fetch",
            f"status {capture.status} over {capture.protocol} from {capture.ip} in {capture.duration_s:.2f} s, "
            f"{_sizes(capture, encoding)}",
        )

    def _pipeline(self) -> Pipeline:
        from drumlin.node.main import make_pipeline

        return make_pipeline(self._config)

    def _explain_page(self, capture: Capture) -> None:
        pipeline = self._pipeline()
        pipeline.read([capture])
        self._page = capture
        self.say("type", f"{capture.mime or 'unknown'}, charset {capture.charset or 'none'}")
        if capture.title or capture.text:
            self.say("page", f"title {capture.title!r}, language {capture.languages or 'unknown'}")
            text = capture.text.decode("utf-8", "replace")
            self.say("text", f"{show_size(len(capture.text))}: {text[:TEXT_SHOWN_CHARS]!r}")
        if capture.soft_404:
            self.say("soft 404", "the page says that it is not there, so a crawl would not follow its links")
        asked = [name for name, said in (("noindex", capture.noindex), ("nofollow", capture.nofollow)) if said]
        self.say("directives", ", ".join(asked) or "none: the page may be indexed and its links followed")
        self.say("content", f"sha256 {capture.digest.hex()}")
        self._explain_links(capture)

    def _explain_links(self, capture: Capture) -> None:
        kinds: dict[str, int] = {}
        for kind in capture.links.kinds:
            kinds[kind] = kinds.get(kind, 0) + 1
        by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
        followed = _targets(capture)
        addresses = "1 distinct web address" if len(followed) == 1 else f"{len(followed):,} distinct web addresses"
        self.say("links", f"{by_kind}; {addresses}")
        for url in followed[:LINKS_SHOWN]:
            self.say("", url)
        if len(followed) > LINKS_SHOWN:
            self.say("", f"and {len(followed) - LINKS_SHOWN} more")


def _sizes(capture: Capture, encoding: str) -> str:
    """How large the body was on its way, and how large it is."""
    sent = show_size(len(capture.body_raw))
    return sent if encoding == "identity" else f"{sent} of {encoding}, {show_size(len(capture.body))} unpacked"


def _targets(capture: Capture) -> list[str]:
    """The web addresses that a page names, each once."""
    return list(dict.fromkeys(url for url in capture.links.urls if url))


def _page_document(capture: Capture) -> dict[str, object]:
    """A page for programs. What is not known is null."""
    links = capture.links
    named = zip(links.urls, links.kinds, links.rels, links.texts, strict=True)
    return {
        "url": capture.url,
        "redirects": list(capture.redirects),
        "status": capture.status,
        "headers": dict(capture.headers),
        "protocol": capture.protocol or None,
        "ip": capture.ip or None,
        "mime": capture.mime or None,
        "charset": capture.charset or None,
        "language": capture.languages or None,
        "title": capture.title or None,
        "description": capture.description or None,
        "canonical": capture.canonical or None,
        "noindex": capture.noindex,
        "nofollow": capture.nofollow,
        "soft_404": capture.soft_404,
        "body_bytes": len(capture.body),
        "wire_bytes": len(capture.body_raw),
        "sha256": capture.digest.hex(),
        "text": capture.text.decode("utf-8", "replace"),
        "links": [{"url": url, "kind": kind, "rel": rel, "text": text} for url, kind, rel, text in named if url],
    }


def _failed(kind: str, error: str) -> FetchFailed:
    return FetchFailed(_sentence(kind, error or "no answer"), _retry_hint(kind))


def _sentence(kind: str, message: str) -> str:
    """Some messages are sentences already."""
    return f"{kind}: {message.rstrip('.')}."


def _retry_hint(kind: str) -> str:
    from drumlin.frontier import RETRY_RULES

    rule = RETRY_RULES.get(kind)
    if rule is None or rule.retries:
        return "A crawl would try again later."
    return f"A crawl would not try again: {rule.why}."
