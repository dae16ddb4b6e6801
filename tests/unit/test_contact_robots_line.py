"""Hosts with long robots files take turns; nobody else waits for them."""

from __future__ import annotations

import pytest

from drumlin.contact.robots_line import ROBOTS_SHARE, RobotsLine
from drumlin.contact.rules import Robots, standing_still
from drumlin.robots import Decision
from tests.harness.contacts import WALL, Driver, lease_of

RULES = 9_900


def robots_of_flood(number: int) -> Robots:
    rules = "\n".join(f"Disallow: /private{number}/{rule}/never" for rule in range(RULES))
    return robots_of(f"User-agent: *\n{rules}".encode())


def robots_of(body: bytes) -> Robots:
    decision = Decision(body, False, False, WALL + 1e6, False, "rules", asked_delay=("drumlin", 0.0))
    return Robots(decision, "drumlin")


def test_hosts_with_long_rules_are_contacted_in_turns_and_others_at_once() -> None:
    driver = Driver()
    names = [f"flood{number}.test" for number in range(20)]
    for number, name in enumerate([*names, "honest.test"]):
        honest = name == "honest.test"
        host = driver.grant(lease_of(name, "/1"))
        host.robots["http"] = robots_of(b"User-agent: *") if honest else robots_of_flood(number)
    driver.tick()
    assert driver.urls == ["http://flood0.test/1", "http://honest.test/1"]
    turns = [driver.hosts[name].next_contact for name in names[1:]]
    assert turns == sorted(turns)
    assert turns[-1] - driver.now > 18 * robots_of_flood(0).expected_s / ROBOTS_SHARE * 0.99
    driver.tick(turns[0] - driver.now)
    assert driver.urls[2:] == ["http://flood1.test/1"]


def test_a_host_in_line_gets_its_turn_and_keeps_its_pace() -> None:
    driver = Driver()
    line, host, robots = RobotsLine(standing_still), driver.grant(lease_of("a.test", "/1")), robots_of_flood(50)
    now = driver.now
    line.charge(1.0, now)
    assert not line.admits(host, robots, now)
    assert not line.admits(host, robots, now + 0.5 / ROBOTS_SHARE), "it has one turn, however often it asks"
    assert host.next_contact == pytest.approx(now + 1.0 / ROBOTS_SHARE)
    assert line.admits(host, robots, now + 1.0 / ROBOTS_SHARE)
    host.next_contact = now + 100.0
    assert not line.admits(host, robots, now + 1.0 / ROBOTS_SHARE)
    assert host.next_contact == now + 100.0, "waiting makes no contact earlier"


def test_what_took_longer_than_it_was_expected_to_is_counted() -> None:
    ticks = iter(range(100))
    line, driver = RobotsLine(lambda: next(ticks)), Driver()
    host, robots = driver.grant(lease_of("a.test", "/1")), robots_of_flood(51)
    assert line.allows(robots, "http://a.test/1", driver.now)
    assert not line.admits(host, robots, driver.now)
    assert host.next_contact >= driver.now + 1.0 / ROBOTS_SHARE


def test_rules_that_are_prepared_and_quickly_matched_need_no_turn() -> None:
    robots = robots_of_flood(3)
    assert robots.expected_s > 0.01
    assert robots.allows("http://a.test/private/1")
    assert robots.expected_s < 0.01
