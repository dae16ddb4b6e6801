"""`drumlin fetch URL`: one page through the whole pipeline, each decision explained. Nothing is stored."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import results, write_json
from drumlin.config import CrawlConfig, Loaded, config_options
from drumlin.errors import EXIT_OK, ConfigError, DrumlinError, SiteError
from drumlin.lines import one_line
from drumlin.node.cookies import Cookies

if TYPE_CHECKING:
    from drumlin.fetch import Fetcher, Transfer
    from drumlin.model import Capture
    from drumlin.pipeline import Pipeline
    from drumlin.protocol import Assignment
    from drumlin.robots import Decision

EXIT_NOT_FETCHED = 6
TEXT_SHOWN_CHARS = 300
LINKS_SHOWN = 10


class FetchFailed(DrumlinError):
    """The page was not fetched; the steps printed before say why."""

    exit_code = EXIT_NOT_FETCHED


@click.command("fetch")
@click.argument("url")
@click.option("--text", "only", flag_value="text", help="print the page's text, and nothing else")
@click.option("--html", "only", flag_value="html", help="print the body as it is without its content encoding")
@click.option("--links", "only", flag_value="links", help="print the links, one a line")
@config_options(
    "user_agent", "allow_private", "fetch_timeout", "connect_timeout", "body_bytes_max", "delay", "json", "color"
)
def command(loaded: Loaded, url: str, only: str | None) -> int:
    """Fetch one page as a crawl would, and explain every decision on the way."""
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


class Explained:
    """The steps of one fetch, in order, as (step, what happened)."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._config: CrawlConfig = loaded.crawl
        self._cookies = Cookies(loaded.crawl.cookies)
        self._sent = ""
        """The cookies of the last request for a page."""
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
            console.print(one_line(f"{step:<12} {says}"), soft_wrap=True)

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
        from drumlin.node.main import make_fetcher
        from drumlin.urls import canonical

        url = canonical(href if "://" in href else f"http://{href}")
        if url is None:
            raise ConfigError(f"{href!r} is not a web address.", "Give an http:// or https:// URL.")
        fetcher = make_fetcher(self._config, 4)
        try:
            capture = self._follow(fetcher, url)
        finally:
            fetcher.close()
        self._explain_page(capture)

    def _follow(self, fetcher: Fetcher, url: str) -> Capture:
        """Fetch `url` and wherever it redirects to, politely."""
        from drumlin.node.steps import asked_url
        from drumlin.protocol import Assignment
        from drumlin.urls import host_of

        task = Assignment("", url, 5, 0.0, host_of(url), 0.0)
        while True:
            self._check_robots(fetcher, asked_url(task))
            capture = self._fetch(fetcher, task)
            if not 300 <= capture.status < 400 or capture.status == 304:
                return capture
            task = self._redirected(capture, task)
            self.say("redirect", f"to {asked_url(task)}")

    def _redirected(self, capture: Capture, task: Assignment) -> Assignment:
        """What to fetch next: another spelling of the same URL, or another URL."""
        from drumlin.node.steps import asked_url, next_step
        from drumlin.pipeline import redirect_target
        from drumlin.protocol import Assignment
        from drumlin.urls import host_of

        redirects_max = self._config.redirects_max
        self._cookies.learn(capture.response_headers, asked_url(task), time.time())
        step = next_step(capture.response_headers, self._sent, task, redirects_max, self._cookies)
        if step is not None:
            return step
        try:
            target = redirect_target(capture, redirects_max)
        except SiteError as broken:
            raise FetchFailed(f"{broken.kind}: {broken.message}.") from broken
        return Assignment("", target, 5, 0.0, host_of(target), 0.0, redirects=(*task.redirects, task.url))

    def _check_robots(self, fetcher: Fetcher, url: str) -> None:
        from drumlin.robots import parse
        from drumlin.urls import domain_of, host_of

        host = host_of(url)
        self.say("url", f"{url} (host {host}, registrable domain {domain_of(host)})")
        decision = self._robots(fetcher, f"{url.partition(':')[0]}://{host}/robots.txt")
        agent = self._config.product_token
        rules = parse(decision.rules_body or b"")
        allowed = not decision.deny_all and (decision.allow_all or rules.allowed(agent, url))
        delay = rules.crawl_delay(agent)
        pace = f"; Crawl-delay {delay:g} s" if delay else ""
        verdict = "allows" if allowed else "denies"
        self.say("robots", f"robots.txt ({decision.reason}) {verdict} {agent} this URL{pace}")
        if not allowed:
            raise FetchFailed(f"robots.txt does not let {agent} fetch {url}.", "It was not requested.")
        time.sleep(max(self._config.delay_s, delay or 0.0))

    def _robots(self, fetcher: Fetcher, robots_url: str) -> Decision:
        from drumlin.http.headers import header_fields
        from drumlin.node.contact import robots_body, robots_redirect
        from drumlin.robots import REDIRECTS_MAX, decide

        redirects = 0
        while True:
            transfer = self._transfer(fetcher, robots_url)
            target = robots_redirect(transfer, robots_url)
            redirects += bool(target)
            if target and redirects <= REDIRECTS_MAX:
                robots_url = target
                time.sleep(self._config.delay_s)
                continue
            if transfer.failure and not redirects:
                raise _failed(transfer.failure, transfer.error)
            body, failure = robots_body(transfer, header_fields(transfer.response_headers()))
            return decide(
                transfer.status or None,
                body,
                redirects,
                failure or transfer.failure,
                time.time(),
                agent=self._config.product_token,
            )

    def _fetch(self, fetcher: Fetcher, task: Assignment) -> Capture:
        from drumlin.node.contact import request_block
        from drumlin.node.outcomes import status_failure
        from drumlin.node.steps import asked_url, cookie_for
        from drumlin.urls import host_of

        url = asked_url(task)
        self._sent = cookie_for(task, self._cookies)
        transfer = self._transfer(fetcher, url, self._sent)
        if transfer.failure:
            raise _failed(transfer.failure, transfer.error)
        host = host_of(url)
        request = request_block(url, host, fetcher.request_headers, self._sent)
        pipeline = self._pipeline()
        capture = pipeline.capture(transfer, task, host, request=request, now=time.time())
        try:
            pipeline.decode_body(capture)
        except SiteError as broken:
            raise FetchFailed(f"{broken.kind}: {broken.message}.", _retry_hint(broken.kind)) from broken
        encoding = capture.headers.get("content-encoding", "identity")
        duration_s = transfer.finished - transfer.started
        self.say(
            "fetch",
            f"status {capture.status} over {capture.protocol} from {capture.ip} in {duration_s:.3f} s, "
            f"{len(capture.body_raw):,} bytes ({encoding}; {len(capture.body):,} decoded)",
        )
        failure = status_failure(capture.status)
        if failure:
            raise FetchFailed(f"{failure}: status {capture.status}.", _retry_hint(failure))
        return capture

    def _transfer(self, fetcher: Fetcher, url: str, cookie: str = "") -> Transfer:
        arrived: list[Transfer] = []
        fetcher.start(url, arrived.append, cookie=cookie)
        while not arrived:
            fetcher.run_once(1.0)
        return arrived[0]

    def _pipeline(self) -> Pipeline:
        from drumlin.node.main import make_pipeline
        from drumlin.protocol import Registered

        return make_pipeline(self._config, Registered("", "", 0.0, "", {}, "", [], []), lambda url: None)

    def _explain_page(self, capture: Capture) -> None:
        pipeline = self._pipeline()
        pipeline.read([capture])
        self._page = capture
        self.say("type", f"{capture.mime or 'unknown'}, charset {capture.charset or 'none'}")
        if capture.title or capture.text:
            self.say("page", f"title {capture.title!r}, language {capture.languages or 'unknown'}")
            text = capture.text.decode("utf-8", "replace")
            self.say("text", f"{len(capture.text):,} bytes: {text[:TEXT_SHOWN_CHARS]!r}")
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
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
        followed = _targets(capture)
        self.say("links", f"{counted}; {len(followed)} distinct web addresses")
        for url in followed[:LINKS_SHOWN]:
            self.say("", url)
        if len(followed) > LINKS_SHOWN:
            self.say("", f"and {len(followed) - LINKS_SHOWN} more")


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
    return FetchFailed(f"{kind}: {error or 'no answer'}.", _retry_hint(kind))


def _retry_hint(kind: str) -> str:
    from drumlin.frontier import RETRY_RULES

    rule = RETRY_RULES.get(kind)
    if rule is None or rule.retries:
        return "A crawl would try again later."
    return f"A crawl would not try again: {rule.why}."
