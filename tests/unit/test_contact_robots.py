"""What robots.txt means for its host: what may be asked for, how fast, and for how long that is known."""

from __future__ import annotations

import pytest

from drumlin.contact.hosts import HostWork
from drumlin.contact.rules import Robots
from drumlin.model import FailureKind
from drumlin.robots import Decision, decide
from drumlin.robots.noted import SITEMAPS_NAMED_MAX
from tests.harness.contacts import SHARED, WALL, Driver, heard, lease_of

RULES = b"User-agent: *\nDisallow: /\n"
ALLOWING = b"User-agent: *\nAllow: /\n"


def test_nothing_is_asked_for_before_robots_txt_nor_against_it() -> None:
    driver = Driver()
    driver.work("/1", "/no/2", known=False)
    assert driver.urls == ["http://a.test/robots.txt"]
    driver.answer(200, body=b"User-agent: *\nDisallow: /no\n")
    assert driver.urls == ["http://a.test/1"]
    driver.answer(200)
    assert driver.begun == []
    assert driver.ends == [("http://a.test/1", ""), ("http://a.test/no/2", "robots")]


def test_a_robots_txt_that_could_not_be_read_allows_nothing() -> None:
    driver = Driver()
    driver.work("/1", known=False)
    answer = heard(200, driver.now)
    answer.failure = FailureKind.TOO_LARGE
    driver.end(answer)
    assert (driver.begun, driver.ends) == ([], [("http://a.test/1", "robots")])


def test_every_answer_to_a_request_for_robots_txt_is_kept_with_where_it_leads() -> None:
    driver = Driver()
    driver.work("/1", known=False)
    driver.answer(301, "/rules")
    driver.answer(404)
    kept = [(one.fetch.host.host, one.answer.status, one.redirect_to) for one in driver.kept]
    assert kept == [("a.test", 301, "http://a.test/rules"), ("a.test", 404, "")]


def test_a_redirect_whose_body_was_cut_off_is_followed() -> None:
    driver = Driver()
    driver.work("/1", known=False)
    answer = heard(301, driver.now, Location="/rules")
    answer.failure = FailureKind.RESET
    driver.end(answer)
    assert driver.urls == ["http://a.test/rules"]


def test_sitemaps_are_told_of_if_the_crawl_wants_them_and_not_too_many() -> None:
    named = b"".join(b"Sitemap: /map%d.xml\n" % number for number in range(SITEMAPS_NAMED_MAX + 1))
    for wanted, count in ((True, SITEMAPS_NAMED_MAX), (False, 0)):
        driver = Driver(sitemaps=wanted)
        driver.work("/1", known=False)
        driver.answer(200, body=ALLOWING + named)
        (report,) = driver.reports
        assert len(report.sitemaps) == count
        assert report.sitemaps[:1] == ["http://a.test/map0.xml"][:count]


def test_rules_picked_for_another_name_of_the_crawler_are_asked_for_again() -> None:
    """A crawl may be resumed under another name."""
    long = b"#" * 100_000 + b"\nUser-agent: other\nDisallow: /\n"
    known = HostWork(lease_of("a.test"), 0.0, 0.0, 0.0, "drumlin")
    known.robots["http"] = Robots(decide(200, long, 0, "", 1e12, agent="drumlin"), "drumlin")
    assert "http" in HostWork(lease_of("a.test", note=known.note()), 0.0, 0.0, 0.0, "drumlin").robots
    assert HostWork(lease_of("a.test", note=known.note()), 0.0, 0.0, 0.0, "other").robots == {}


@pytest.mark.parametrize(
    ("rules", "pace", "reported"),
    [(b"", 2.0, None), (b"Crawl-delay: 1", 2.0, None), (b"Crawl-delay: 7", 7.0, 7.0)],
    ids=["no-wish", "wishes-less", "wishes-more"],
)
def test_only_the_pace_that_a_host_wishes_is_remembered_as_its_own(
    rules: bytes, pace: float, reported: float | None
) -> None:
    """The crawl's delay may be another when it is resumed."""
    driver = Driver(delay_s=2.0)
    host = driver.work("/1", known=False)
    driver.answer(200, body=ALLOWING + rules)
    assert host.delay_s == pace
    assert [report.delay_s for report in driver.reports] == [reported]
    driver.tick(pace - 0.1)
    assert driver.begun == []
    driver.tick(0.1)
    assert driver.urls == ["http://a.test/1"]


def test_a_wish_that_the_crawls_own_delay_went_beyond_counts_when_that_is_shorter() -> None:
    rules = Decision(b"User-agent: *\nCrawl-delay: 2\n", False, False, 1e12, False, "rules")
    known = HostWork(lease_of("a.test"), 0.0, 0.0, 5.0, "drumlin")
    known.robots["http"] = Robots(rules, "drumlin")
    resumed = HostWork(lease_of("a.test", note=known.note()), 0.0, 0.0, 0.5, "drumlin")
    assert resumed.delay_s == 2.0


@pytest.mark.parametrize("wall_s", [-1e6, 0.0, 1e6])
@pytest.mark.parametrize("shared_s", [-1e6, 0.0, 1e6])
def test_rules_are_asked_for_again_when_either_clock_says_so(wall_s: float, shared_s: float) -> None:
    """A crawl that rested for a week must not go by rules of then, and a wall clock may be wrong."""
    rules = Decision(b"", False, False, 500.0, False, "rules", expires_shared=900.0)
    assert rules.expired(499.0 + wall_s, 899.0 + shared_s) == (wall_s > 0 or shared_s > 0)


def test_rules_remember_when_they_expire_by_both_clocks() -> None:
    driver = Driver(robots_ttl_s=600.0)
    host = driver.work("/1", known=False)
    driver.answer(200, body=RULES)
    again = HostWork(lease_of("a.test", note=host.note()), 0.0, 0.0, 0.0, "drumlin").robots["http"].decision
    assert again.expires_shared == SHARED + driver.now + 600.0
    assert again.expires == WALL + driver.now + 600.0


def test_rules_that_have_expired_are_asked_for_again_before_the_next_url() -> None:
    driver = Driver(robots_ttl_s=5.0)
    driver.work("/1", "/2", known=False)
    driver.answer(200, body=ALLOWING)
    driver.now += 5.0
    assert driver.answer(200) == "http://a.test/1"
    assert driver.urls == ["http://a.test/robots.txt"]
