"""Why a URL that pages link to never entered the frontier: the rules that keep it out, and the pages that name it."""

from __future__ import annotations

from typing import NamedTuple

from drumlin.api.explaining.store_answers import Linkers
from drumlin.api.messages.hosts import NOT_FOLLOWED, StoryStep, URLStory
from drumlin.config import CrawlConfig
from drumlin.frontier import NOFOLLOW, TrapFilter, TrapLimits
from drumlin.lines import counted
from drumlin.parse import ASSET_KINDS, FOLLOWED_KINDS
from drumlin.store.tables.lookup import REDIRECT, StoredLink
from drumlin.urls import Scope, host_of, identity

PAGES_NAMED_MAX = 3
NEVER_QUEUED = "It was never queued."
BY_TODAYS_RULES = "By today's rules (what was refused is not kept):"
_OUT = {
    "scope": "--scope {scope} leaves it out.",
    "exclude": "--exclude leaves it out.",
    "include": "It matches no --include.",
}
_NOTHING_NOW = (
    "No present rule keeps it out: it is about to be queued, or earlier settings left it out, or what had been counted "
    "of its host until then (docs/reference/robots.md)."
)


class Rules(NamedTuple):
    """The rules of today by which URLs are judged, and how many URLs the host of this one has already."""

    scope: Scope
    config: CrawlConfig
    year: int
    host_urls: int = 0


def unfollowed_story(url: str, linkers: Linkers, rules: Rules) -> URLStory:
    """The story of a URL that pages link to but that was never queued. What is refused is not kept, so it is judged
    again, by the rules of today."""
    links = linkers.links
    steps = [StoryStep("refused", f"{NEVER_QUEUED} {BY_TODAYS_RULES}")]
    steps += [StoryStep("refused", sentence) for sentence in why_not_followed(url, links, rules)]
    return URLStory(
        url=url,
        host=host_of(url),
        state=NOT_FOLLOWED,
        found_on=links[0].page,
        redirects=[],
        priority=None,
        depth=None,
        attempts=None,
        first_seen=None,
        retry_at=None,
        capture_id="",
        lease_node="",
        lease_until=None,
        dead_letter=None,
        story=[step.told for step in steps],
        host_state=None,
        path="/" + url.split("/", 3)[3],
        discovered_from=links[0].page,
        next_fetch_after=None,
        status=NOT_FOLLOWED,
        last_crawled=None,
        fetches=[],
        steps=steps,
        store="whole" if linkers.complete else "partly",
    )


def why_not_followed(url: str, links: list[StoredLink], rules: Rules) -> list[str]:
    """A sentence for what keeps the URL out, and one for each of the first pages that link to it."""
    judged = why_refused(url, rules)
    kept_out = [_kept_out(link, rules.config) for link in links]
    pages = [f"{link.page} {why or refers(link)}." for link, why in zip(links, kept_out, strict=True)]
    unexplained = not judged and not all(kept_out)
    return [*judged, *dict.fromkeys(pages[:PAGES_NAMED_MAX]), *([_NOTHING_NOW] if unexplained else [])]


def why_refused(url: str, rules: Rules) -> list[str]:
    """The rules that keep a URL out, whoever links to it, each in a sentence."""
    out = left_out(url, rules.scope, rules.config)
    trap = TrapFilter(TrapLimits(depth_max=None)).reject(identity(url), 1, rules.year)
    urls_max = rules.config.host_urls_max
    said = [out] if out else []
    if trap:
        said.append(f"It looks like one of endlessly many ({trap}).")
    if urls_max is not None and rules.host_urls >= urls_max:
        said.append(f"Its host has {rules.host_urls:,} URLs already, and --host-urls-max {urls_max:,} permits no more.")
    return said


def left_out(url: str, scope: Scope, config: CrawlConfig) -> str:
    """The setting that leaves a URL out, in a sentence; empty if none does."""
    rule = scope.why_not(url)
    return _OUT[rule].format(scope=config.scope) if rule else ""


def refers(link: StoredLink) -> str:
    """How a page or a redirect refers to a URL."""
    return "redirects to it" if link.kind == REDIRECT else "links to it"


def _kept_out(link: StoredLink, config: CrawlConfig) -> str:
    """How the page refers to the URL and why that is not followed; empty if this link would be."""
    if link.kind == REDIRECT:
        return ""
    if link.kind in ASSET_KINDS:
        return "" if config.assets else f"shows it ({link.kind}), which is fetched with --assets"
    if link.kind not in FOLLOWED_KINDS:
        return f"names it ({link.rel or link.kind}), which is not a link to follow"
    if link.nofollow:
        return "links to it, and asks that its links are not followed (nofollow)"
    if NOFOLLOW in link.rel:
        return "links to it with rel=nofollow, which is not followed"
    if link.soft_404:
        return "links to it, but looks like a page for missing pages: its links are not followed (soft 404)"
    if config.depth is not None and link.depth >= config.depth:
        return f"links to it, {counted(link.depth + 1, 'link')} from a seed and so beyond --depth {config.depth}"
    return ""
