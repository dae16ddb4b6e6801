"""The pages of the benchmark web: realistic HTML, made before the first request, the same for the same seed.

A page is a list of byte strings: response headers, a part of its own (head, navigation, its links, its anchor texts)
and blocks of prose. The blocks are drawn from a large pool: each page has another selection, so no two pages are
near-duplicates, but pages share the blocks, so 20,000 pages of 37 KB take a tenth of their size in memory. About three
tenths of a page are text; the rest is markup, embedded data and attributes. That share is a judgement, not a
measurement of real pages, and it matters: less text makes a page cheaper for a crawler that extracts, fingerprints and
stores text.

Every page of a host is reachable from its "/" within the host: page k links to pages 2k+1 and 2k+2. The other links are
random: about one in ten leads to another host, and a few lead below /private/, which robots.txt denies. Images, styles
and scripts are below /assets/, which is denied too, so no polite crawler fetches them.
"""

from __future__ import annotations

import math
import posixpath
import random
from dataclasses import dataclass

SIZE_BYTES_MAX = 1_000_000
MEAN_OVER_MEDIAN = 1.8
BLOCK_BYTES = 4096
BLOCKS = 1000
CARDS_PER_BLOCK = 3
SCRIPT_ENTRIES_PER_BLOCK = 22
CRUMB_BYTES = 400
CRUMBS = 600
LAYOUTS = 8
VOCABULARY_WORDS = 6000
DENIED_PAGES_PER_HOST = 5
DENIED_LINKS_PER_PAGE = 2
OTHER_HOST_SHARE = 0.1
HOSTS_PER_BLOCK = 250

DENIED_PREFIXES = (b"/private/", b"/assets/")
ROBOTS = b"User-agent: *\nDisallow: /private/\nDisallow: /assets/\nAllow: /\n"
ROBOTS_DENYING_ALL = b"User-agent: *\nDisallow: /\n"
SECTIONS = ("news", "articles", "docs", "people", "products", "events", "notes", "library", "places", "reports")
ONSETS = (*"bcdfghjklmnprstvwz", "br", "ch", "dr", "fl", "gr", "pl", "pr", "qu", "sh", "st", "th", "tr")
NUCLEI = (*"aeiou" * 5, "ai", "ea", "ee", "ie", "oa", "ou", "ö", "é")
CODAS = (*"nrstlmxp", "nd", "st", "ck", "ng")

Parts = list[bytes]


@dataclass(frozen=True)
class WebShape:
    """The shape of the web; the same shape and seed give the same bytes. With `distinct_hosts` only so many hosts have
    pages of their own, and each other host serves the same bytes as one of them. So a web of thousands of hosts takes
    neither minutes to start nor gigabytes. Links within a host then do not contain its name."""

    hosts: int
    pages: int
    size_median: int = 20_000
    links: int = 50
    seed: int = 1
    distinct_hosts: int = 0

    def original_of(self, host: int) -> int:
        """The host whose pages this one serves."""
        return host % self.distinct_hosts if self.distinct_hosts else host


@dataclass(frozen=True)
class Layout:
    """The paths of one host's pages, and the relative reference to each page from each directory."""

    paths: list[str]
    directories: list[str]
    relative: dict[str, list[str]]


def host_address(number: int) -> str:
    """The loopback address of host `number`, outside of 127.0.0.0/16."""
    block, low = divmod(number, HOSTS_PER_BLOCK)
    high, middle = divmod(block, HOSTS_PER_BLOCK)
    return f"127.{1 + high}.{middle}.{low + 1}"


def denied_paths() -> list[str]:
    """The paths that robots.txt forbids although pages link to them."""
    return [f"/private/record-{number}.html" for number in range(DENIED_PAGES_PER_HOST)]


def make_layouts(shape: WebShape) -> list[Layout]:
    return [_make_layout(shape.pages, random.Random(f"{shape.seed} layout {number}")) for number in range(LAYOUTS)]


def _make_layout(pages: int, chance: random.Random) -> Layout:
    sections = chance.sample(SECTIONS, k=min(len(SECTIONS), 2 + pages // 15))
    paths = ["/"] + [_page_path(number, chance.choice(sections)) for number in range(1, pages)]
    directories = [posixpath.dirname(path) if path != "/" else "/" for path in paths]
    relative = {start: [_relative(path, start) for path in paths] for start in set(directories)}
    return Layout(paths, directories, relative)


def _page_path(number: int, section: str) -> str:
    match number % 4:
        case 0:
            return f"/{section}/page{number}.html"
        case 1:
            return f"/{section}/item-{number}"
        case 2:
            return f"/{section}/archive/{2000 + number % 25}/entry{number}.html"
        case _:
            return f"/{section}/topic{number}/"


def _relative(path: str, start: str) -> str:
    """A reference that leads from a page in directory `start` to `path`, the way a person would write it."""
    if path == "/":
        return posixpath.relpath("/", start) + "/"
    return posixpath.relpath(path, start) + ("/" if path.endswith("/") else "")


class PageMaker:
    """Makes the pages of one host after the other."""

    def __init__(self, shape: WebShape, port: int) -> None:
        self.shape = shape
        self.origins = [f"http://{host_address(number)}:{port}" for number in range(shape.hosts)]
        self.layouts = make_layouts(shape)
        chance = random.Random(f"{shape.seed} words")
        self._words = sorted({_make_word(chance) for _ in range(VOCABULARY_WORDS)})
        self._blocks = [_make_block(chance, self._words, BLOCK_BYTES) for _ in range(BLOCKS)]
        self._crumbs = [_make_paragraph(chance, self._words, CRUMB_BYTES).encode() for _ in range(CRUMBS)]
        self._sigma = math.sqrt(2 * math.log(MEAN_OVER_MEDIAN))

    def layout_of(self, host: int) -> Layout:
        return self.layouts[host % LAYOUTS]

    def host_pages(self, host: int) -> list[tuple[str, Parts]]:
        """Path and response of every page of a host."""
        chance = random.Random(f"{self.shape.seed} host {host}")
        paths = self.layout_of(host).paths
        return [(path, self._make_page(host, number, chance)) for number, path in enumerate(paths)]

    def _make_page(self, host: int, number: int, chance: random.Random) -> Parts:
        hrefs = self._hrefs(host, number, chance)
        words = chance.choices(self._words, k=2 * len(hrefs) + 12)
        path = self.layout_of(host).paths[number]
        top, bottom = _page_frame(self._own_origin(host) + path, hrefs, words, chance.randrange(1000))
        size = min(SIZE_BYTES_MAX, chance.lognormvariate(math.log(self.shape.size_median), self._sigma))
        blocks, rest = divmod(max(0, int(size) - len(top) - len(bottom)), BLOCK_BYTES)
        prose = chance.choices(self._blocks, k=blocks) + chance.choices(self._crumbs, k=rest // CRUMB_BYTES)
        return with_headers([top, *prose, bottom])

    def _hrefs(self, host: int, number: int, chance: random.Random) -> list[str]:
        layout, pages = self.layout_of(host), self.shape.pages
        hrefs = [layout.paths[child] for child in (2 * number + 1, 2 * number + 2) if child < pages]
        hrefs += chance.sample(denied_paths(), k=DENIED_LINKS_PER_PAGE)
        others = round(self.shape.links * OTHER_HOST_SHARE) if self.shape.hosts > 1 else 0
        hrefs += [self._foreign_href(host, chance) for _ in range(others)]
        relative, origin = layout.relative[layout.directories[number]], self._own_origin(host)
        for _ in range(self.shape.links - len(hrefs)):
            hrefs.append(_local_href(int(chance.random() * pages), layout, relative, origin, chance.random()))
        chance.shuffle(hrefs)
        return hrefs

    def _own_origin(self, host: int) -> str:
        """How a page names its own host in links; empty if other hosts serve the same page."""
        return "" if self.shape.distinct_hosts else self.origins[host]

    def _foreign_href(self, host: int, chance: random.Random) -> str:
        other = (host + 1 + int(chance.random() * (self.shape.hosts - 1))) % self.shape.hosts
        layout = self.layout_of(self.shape.original_of(other))
        return self.origins[other] + layout.paths[int(chance.random() * self.shape.pages)]


def _local_href(page: int, layout: Layout, relative: list[str], origin: str, form: float) -> str:
    """A link within the host, in one of the forms that sites use."""
    if form < 0.45:
        return layout.paths[page]
    if form < 0.80:
        return relative[page]
    if form < 0.95:
        return origin + layout.paths[page]
    return layout.paths[page] + "#part2"


def with_headers(body: Parts, content_type: str = "text/html; charset=utf-8", status: str = "200 OK") -> Parts:
    length = sum(map(len, body))
    head = (
        f"HTTP/1.1 {status}\r\nServer: bench\r\nDate: Mon, 02 Jun 2025 10:00:00 GMT\r\n"
        f"Content-Type: {content_type}\r\nLast-Modified: Sun, 01 Jun 2025 08:30:00 GMT\r\n"
        f"Cache-Control: max-age=600\r\nVary: Accept-Encoding\r\nContent-Length: {length}\r\n\r\n"
    )
    return [head.encode() + body[0], *body[1:]]


def _make_word(chance: random.Random) -> str:
    syllables = [chance.choice(ONSETS) + chance.choice(NUCLEI) for _ in range(chance.choice((1, 2, 2, 2, 3, 3)))]
    return "".join((*syllables, chance.choice(CODAS)))


def _make_sentence(chance: random.Random, words: list[str]) -> str:
    # The rank of a word is the square of a uniform random number: a few words are frequent, most are rare.
    picked = [words[int(chance.random() ** 2 * len(words))] for _ in range(chance.randint(6, 20))]
    return " ".join(picked).capitalize() + ". "


def _make_paragraph(chance: random.Random, words: list[str], size: int) -> str:
    text, length = [], 0
    while length < size - 7:
        text.append(_make_sentence(chance, words))
        length += len(text[-1])
    return f"<p>{''.join(text).strip()[: size - 7]}</p>\n"


def _make_block(chance: random.Random, words: list[str], size: int) -> bytes:
    """A heading with paragraphs, and a list, a table or a picture."""
    title = " ".join(chance.sample(words, k=4)).capitalize()
    items = [" ".join(chance.choices(words, k=5)) for _ in range(4)]
    match chance.randrange(3):
        case 0:
            extra = "<ul>\n" + "".join(f"<li>{item}</li>\n" for item in items) + "</ul>\n"
        case 1:
            rows = (f"<tr><th>{chance.randrange(9999)}</th><td>{item}</td></tr>\n" for item in items)
            extra = f'<table class="data">\n<tbody>\n{"".join(rows)}</tbody>\n</table>\n'
        case _:
            source = f"/assets/images/{chance.randrange(10_000)}.jpg"
            picture = f'<img src="{source}" alt="{items[0]}" width="640">'
            extra = f"<figure>{picture}<figcaption>{items[1]}</figcaption></figure>\n"
    heading = f'<section class="part">\n<h2>{title}</h2>\n{extra}'
    markup = _make_cards(chance, words) + _make_script(chance, words)
    paragraphs = []
    room = size - len(heading) - len(markup) - len("</section>\n")
    while room > 50:
        paragraphs.append(_make_paragraph(chance, words, min(room, chance.randint(300, 900))))
        room -= len(paragraphs[-1])
    return (heading + "".join(paragraphs) + markup + "</section>\n").encode()


def _make_cards(chance: random.Random, words: list[str]) -> str:
    """Nested elements with many attributes and little text, as component libraries write them."""
    cards = []
    for _ in range(CARDS_PER_BLOCK):
        name, label = chance.choice(words), " ".join(chance.choices(words, k=3))
        number = chance.randrange(100_000)
        cards.append(
            f'<div class="col-12 col-md-6 col-lg-4 mb-3 card card--{name}" data-id="{number}" data-track="list:{name}">'
            f'<div class="card__body d-flex flex-column p-3" style="min-height:{number % 300}px"><span class="badge '
            f'badge-pill text-muted">{number % 97}</span><div class="card__title h5 mt-2"><span>{label}</span></div>'
            '<svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true"><path d="M8 1.5a6.5 6.5 0 '
            f'1 0 0 13 6.5 6.5 0 0 0 0-13zm{number % 9}.25 {number % 7}.5v3.25h2.5"></path></svg></div></div>\n'
        )
    return f'<div class="row cards">\n{"".join(cards)}</div>\n'


def _make_script(chance: random.Random, words: list[str]) -> str:
    """The state that pages embed for their scripts."""
    entries = (
        f'{{"id":{chance.randrange(10**7)},"slug":"{chance.choice(words)}","score":{chance.random():.6f},"on":true}}'
        for _ in range(SCRIPT_ENTRIES_PER_BLOCK)
    )
    return f'<script type="application/json">[{",".join(entries)}]</script>\n'


def _page_frame(url: str, hrefs: list[str], words: list[str], number: int) -> tuple[bytes, bytes]:
    """The parts that belong to this page alone: everything before and after its prose."""
    texts = [f"{words[2 * k]} {words[2 * k + 1]}" for k in range(len(hrefs))]
    links = [f'<a href="{href}">{text}</a>' for href, text in zip(hrefs, texts, strict=True)]
    title = " ".join(words[-6:])
    menu, inline, related = links[:8], links[8:20], links[20:]
    top = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="description" content="About {" ".join(words[-12:])}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="canonical" href="{url}">\n<link rel="stylesheet" href="/assets/site.css">\n'
        '<script src="/assets/site.js" defer></script>\n</head>\n<body class="page">\n<header>\n'
        '<nav class="menu"><ul>\n'
        + "".join(f"<li>{link}</li>\n" for link in menu)
        + f"</ul></nav>\n</header>\n<main>\n<article>\n<h1>{title}</h1>\n"
        f'<img src="/assets/images/head{number}.jpg" alt="{words[0]}" width="1200" height="400">\n'
        + "".join(f"<p>{words[k].capitalize()} {texts[-k]} {link} {words[-k]}.</p>\n" for k, link in enumerate(inline))
    )
    bottom = (
        '</article>\n<aside><h3>Related</h3>\n<ul class="related">\n'
        + "".join(f"<li>{link}</li>\n" for link in related)
        + '</ul></aside>\n</main>\n<footer><p>Contact: <a href="mailto:someone@example.org">mail</a> '
        f'<a href="#top">top</a></p><p>{words[1]} {number}</p></footer>\n</body>\n</html>\n'
    )
    return top.encode(), bottom.encode()
