"""The hosts of the bundled web, one function for each: what is there, and what a correct crawler does with it.

Functions that need another host to link to use `plain-1`, which always exists.
"""

from __future__ import annotations

import datetime
import gzip
import random
import re
from collections.abc import Callable

from drumlin.testing.messages import Ending, Request, Response
from drumlin.testing.scripted import ScriptedWeb
from drumlin.testing.site import Site

PLAIN_PAGES = 12
HUGE_BYTES = 17 << 20
DRIP_BYTES = 2000
CALENDAR_YEARS = 2
"""How many years ahead a date in a URL may be before it counts as a trap, as in `drumlin.frontier.TrapLimits`."""


def fill(web: ScriptedWeb, hosts: int, seed: int) -> None:
    """Make so many hosts: first a plain one, then the special ones, then plain ones again."""
    if not hosts:
        return
    makers = [("plain-1", plain), *SPECIAL.items()]
    makers += [(f"plain-{number + 2}", plain) for number in range(hosts - len(makers))]
    for name, make in makers[:hosts]:
        make(Site(web, name, random.Random(f"{seed} {name}")))
        web.seeds.append(web.url(name))


def plain(site: Site) -> None:
    """Nothing special: pages that link to each other, and a picture that is not followed."""
    paths = ["/", *(f"/{site.word()}/page{number}.html" for number in range(1, PLAIN_PAGES))]
    picture = '<img src="/picture.png" alt="a picture">\n<script src="/script.js"></script>\n'
    for number, path in enumerate(paths):
        onward = [paths[child] for child in (2 * number + 1, 2 * number + 2) if child < len(paths)]
        site.page(path, links=[*onward, site.chance.choice(paths), "mailto:someone@example.org"], body=picture)
    for asset in ("/picture.png", "/script.js"):
        site.web.expected.never.add(site.url(asset))


def robots_rules(site: Site) -> None:
    """Denied sections with exceptions, a rule with a wildcard, and a Crawl-delay."""
    site.robots(
        "User-agent: *\nCrawl-delay: 0.2\nDisallow: /private/\nAllow: /private/open.html\nDisallow: /*.cgi$\n\n"
        "User-agent: somebody-else\nDisallow: /\n"
    )
    site.page("/", links=["/private/a.html", "/private/open.html", "/run.cgi", "/run.cgi?x=1", "/public.html"])
    for path in ("/private/open.html", "/run.cgi?x=1", "/public.html"):
        site.page(path, links=["/private/b.html"])
    for path in ("/private/a.html", "/private/b.html", "/run.cgi"):
        site.never(path)


def robots_missing(site: Site) -> None:
    """No robots.txt: everything is allowed."""
    site.page("/", links=["/free.html"])
    site.page("/free.html")


def robots_broken(site: Site) -> None:
    """A server error for robots.txt: nothing is allowed until it recovers, and here it does not."""
    site.web.respond(site.host, "/robots.txt", Response(status=500, body="no"))
    site.never("/")
    site.web.expected.dead.setdefault("robots_unreachable", set()).add(site.url("/"))


def redirects(site: Site) -> None:
    """Chains, a redirect to another host, a loop, an endless chain, and one without a valid target."""
    other = site.web.url("plain-1")
    site.page("/", links=["/chain1", "/away", "/loop1", "/long0", "/nowhere", "/refresh.html"])
    for path, target, status in (("/chain1", "/chain2", 301), ("/chain2", "/end.html", 302), ("/away", other, 307)):
        site.answer(path, Response(status=status, headers={"Location": target}))
    site.page("/end.html")
    site.web.respond(site.host, "/loop1", Response(status=302, headers={"Location": "/loop2"}))
    site.dead("redirect_loop", "/loop2", Response(status=302, headers={"Location": "/loop1"}))
    site.web.respond(site.host, "/long*", _longer)
    site.dead("bad_redirect", "/nowhere", Response(status=302, headers={"Location": "http://"}))
    site.page("/refresh.html", head='<meta http-equiv="refresh" content="0; url=/refreshed.html">\n')
    site.page("/refreshed.html")
    site.web.expected.dead.setdefault("redirect_limit", set()).add(site.url("/long5"))


def _longer(request: Request) -> Response:
    step = int(request.path.removeprefix("/long") or 0)
    return Response(status=302, headers={"Location": f"/long{step + 1}"})


def duplicates(site: Site) -> None:
    """One page at three addresses, and pages that differ in a word."""
    same = ["/same1.html", "/same2.html", "/same3.html"]
    near = ["/near1.html", "/near2.html"]
    site.page("/", links=same + near)
    copy = site.html("copy", body=f"<p>{' '.join(site.sentence() for _ in range(60))}</p>")
    for path in same:
        site.answer(path, Response(body=copy))
    long_text = site.html("near", body=f"<p>{' '.join(site.sentence() for _ in range(400))}</p>")
    for number, path in enumerate(near):
        site.answer(path, Response(body=long_text.replace("</h1>", f" {number}</h1>")))


def calendar(site: Site) -> None:
    """A calendar in which there is always a next month."""
    year = datetime.datetime.now(datetime.UTC).year

    def month(request: Request) -> Response:
        found = re.fullmatch(r"/calendar/(\d{4})/(\d{2})", request.path)
        if not found:
            return Response(status=404)
        then, months = int(found[1]), int(found[2])
        onward = f"/calendar/{then + months // 12}/{months % 12 + 1:02}"
        words = Site(site.web, site.host, random.Random(request.path))
        return Response(body=words.html(request.path, [onward]))

    site.page("/", links=[f"/calendar/{year}/01"])
    site.web.respond(site.host, "/calendar/*", month)
    site.web.expected.fetched.add(site.url(f"/calendar/{year}/01"))
    site.web.expected.never.add(site.url(f"/calendar/{year + CALENDAR_YEARS + 1}/02"))


def errors(site: Site) -> None:
    """Pages that are gone, that fail once, that always fail, and that ask to come back later."""

    def first(status: int, path: str, **headers: str) -> Callable[[Request], Response]:
        page = Response(body=site.html(path))
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return lambda request: Response(status=status, headers=fields) if request.number == 1 else page

    site.page("/", links=["/missing", "/gone", "/sometimes", "/always", "/busy", "/too-fast"])
    site.answer("/missing", Response(status=404, body="no"))
    site.answer("/gone", Response(status=410, body="no more"))
    site.answer("/sometimes", first(500, "/sometimes"))
    site.answer("/busy", first(503, "/busy", Retry_After="1"))
    site.answer("/too-fast", first(429, "/too-fast", Retry_After="1"))
    site.dead("http_5xx", "/always", Response(status=500, body="always"))


def slow(site: Site) -> None:
    """A page that takes a second, and one that comes a byte at a time and never ends in time."""
    site.page("/", links=["/slow.html", "/drip.html"])
    site.page("/slow.html", delay_s=1.0)
    site.dead("timeout", "/drip.html", Response(body=b"x" * DRIP_BYTES, drip_s=0.5))


def huge(site: Site) -> None:
    """A page larger than the limit, and a small one that unpacks to a large one."""
    site.page("/", links=["/huge.html", "/packed.html"])
    site.dead("too_large", "/huge.html", lambda _: Response(body=b"<p>too much\n" * (HUGE_BYTES // 12)))
    site.page("/packed.html", body="<p>again and again</p>\n" * 20_000, encoding="gzip")


def broken(site: Site) -> None:
    """Connections that are reset, once or always, and a body that stops half-way."""

    def once(request: Request) -> Response:
        return Response(ending=Ending.RESET) if request.number == 1 else Response(body=site.html("/once.html"))

    site.page("/", links=["/once.html", "/always.html", "/cut.html"])
    site.answer("/once.html", once)
    site.dead("reset", "/always.html", Response(ending=Ending.RESET))
    site.answer("/cut.html", Response(body=site.html("/cut.html"), ending=Ending.CUT))


def encodings(site: Site) -> None:
    """Compressed and chunked answers, and text in other charsets than it claims."""
    site.page("/", links=["/gzip.html", "/br.html", "/chunked.html", "/latin1.html", "/liar.html", "/unknown.html"])
    site.page("/gzip.html", links=["/by-gzip.html"], encoding="gzip")
    site.page("/br.html", links=["/by-br.html"], encoding="br", chunked=True)
    site.page("/chunked.html", links=["/by-chunks.html"], chunked=True)
    for path in ("/by-gzip.html", "/by-br.html", "/by-chunks.html"):
        site.page(path)
    text = "<title>Café</title><p>déjà vu, naïve façade " * 20
    for path, charset in (
        ("/latin1.html", "iso-8859-1"),
        ("/liar.html", "utf-8"),
        ("/unknown.html", "no-such-charset"),
    ):
        body = f"{text}{path}".encode("latin-1")
        site.answer(path, Response(body=body, content_type=f"text/html; charset={charset}"))


def wishes(site: Site) -> None:
    """Pages that ask not to be indexed or their links not to be followed, in every possible way."""
    site.page("/", links=["/noindex.html", "/nofollow.html", "/header.html"], body='<a rel="nofollow" href="/ad.html">')
    site.page("/noindex.html", links=["/by-noindex.html"], head='<meta name="robots" content="noindex">\n')
    site.page("/by-noindex.html")
    site.page("/nofollow.html", links=["/by-meta.html"], head='<meta name="robots" content="nofollow">\n')
    site.page("/header.html", links=["/by-header.html"], headers={"X-Robots-Tag": "nofollow"})
    for path in ("/ad.html", "/by-meta.html", "/by-header.html"):
        site.never(path)


def links(site: Site) -> None:
    """Links relative to a base element, in frames and image maps, and a page that names another one as canonical."""
    frames = '<iframe src="/framed.html"></iframe>\n<map name="m"><area href="/area.html" alt="an area"></map>\n'
    site.page("/", links=["/based/index.html", "/copy.html?print=1"], body=frames)
    site.page("/based/index.html", links=["by-base.html"], head='<base href="/elsewhere/">\n')
    for path in ("/framed.html", "/area.html", "/elsewhere/by-base.html"):
        site.page(path)
    site.page("/copy.html?print=1", head='<link rel="canonical" href="/copy.html">\n')
    site.web.expected.never.add(site.url("/based/by-base.html"))


def sitemaps(site: Site) -> None:
    """Pages that only sitemaps list: an index with two parts, one of them compressed."""
    site.robots(f"User-agent: *\nAllow: /\nSitemap: {site.url('/sitemap-index.xml')}\n")
    site.page("/")
    space = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    parts = ("/sitemap1.xml", "/sitemap2.xml.gz")
    entries = "".join(f"<sitemap><loc>{site.url(part)}</loc></sitemap>" for part in parts)
    index = f'<?xml version="1.0"?><sitemapindex {space}>{entries}</sitemapindex>'
    site.answer("/sitemap-index.xml", Response(body=index, content_type="application/xml"))
    for number, part in enumerate(parts):
        pages = [site.page(f"/only-in-sitemap-{number}-{page}.html") for page in range(4)]
        locations = "".join(f"<url><loc>{page}</loc><priority>0.8</priority></url>" for page in pages)
        body = f'<?xml version="1.0"?><urlset {space}>{locations}</urlset>'.encode()
        if part.endswith(".gz"):
            site.answer(part, Response(body=gzip.compress(body, mtime=0), content_type="application/gzip"))
        else:
            site.answer(part, Response(body=body, content_type="application/xml"))


def parameters(site: Site) -> None:
    """One page with many spellings of its URL: tracking parameters, session ids, fragments, another order."""
    again = ["/item?a=1&b=2", "/item?b=2&a=1", "/item?a=1&b=2&utm_source=mail", "/item?a=1&b=2#part"]
    session = "/item?a=1&b=2&PHPSESSID=0123456789abcdef0123456789abcdef"
    site.page("/", links=[*again, session])
    site.page("/item?a=1&b=2")
    for path in (again[1], again[2], session):
        site.web.expected.never.add(site.url(path))


def repetition(site: Site) -> None:
    """A relative link that leads one folder deeper each time."""

    def deeper(request: Request) -> Response:
        words = Site(site.web, site.host, random.Random(request.path))
        return Response(body=words.html(request.path, ["more/index.html"]))

    site.page("/", links=["/deep/index.html"])
    site.web.respond(site.host, "/deep/*", deeper)
    site.web.expected.fetched.add(site.url("/deep/index.html"))
    site.web.expected.never.add(site.url(f"/deep/{'more/' * 8}index.html"))


def soft_missing(site: Site) -> None:
    """Every unknown page says "not found" with status 200, and leads to another that says the same."""
    apology = (
        "<!DOCTYPE html><title>Page not found</title><h1>404</h1><p>We could not find that page. "
        'Did you mean <a href="/lost1.html?again=1">this</a>?'
    )
    site.page("/", links=["/real.html", "/lost1.html", "/lost2.html"])
    site.page("/real.html")
    site.web.respond(site.host, "/lost*", Response(body=apology))
    site.web.expected.fetched |= {site.url("/lost1.html"), site.url("/lost2.html")}
    site.web.expected.never.add(site.url("/lost1.html?again=1"))


SPECIAL: dict[str, Callable[[Site], None]] = {
    "robots-rules": robots_rules,
    "robots-missing": robots_missing,
    "robots-broken": robots_broken,
    "redirects": redirects,
    "duplicates": duplicates,
    "calendar": calendar,
    "errors": errors,
    "slow": slow,
    "huge": huge,
    "broken": broken,
    "encodings": encodings,
    "wishes": wishes,
    "links": links,
    "sitemaps": sitemaps,
    "parameters": parameters,
    "repetition": repetition,
    "soft-missing": soft_missing,
}
