"""The pictures of `drumlin top`: they fit any terminal, say why a host waits, and no site can forge them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.cells import cell_len

from drumlin.cli.screen.frame import Scene, frame, picture
from drumlin.cli.screen.history import chart, rates
from drumlin.cli.screen.keys import keys_in
from drumlin.cli.screen.lists import listing
from drumlin.cli.screen.sampling import LETTERS_ASKED, Sample, Seen
from drumlin.cli.screen.view import View

NOW = 1_800_000_000.0
SIZES = [(80, 24), (120, 40), (200, 60), (100, 30), (40, 10), (20, 3), (1, 1)]
POLITE = "Politeness: Each of the 14 hosts that have URLs left is asked as often as its delay allows."


def host(name: str, state: str = "leased", **more: Any) -> dict[str, Any]:
    plain = {"queued": 3, "pages": 5, "delay_s": 1.0, "lease_node": "n0", "next_contact": NOW + 9.0, "backoff": {}}
    why = {"leased": "n0 may contact it for another 19 s.", "waiting": "It may be contacted in 9 s: every 15 s."}
    return {
        "host": name,
        "state": state,
        "why": why.get(state, "It is given to the next node that asks."),
        **plain,
    } | more


def node(name: str, status: str = "active", **more: Any) -> dict[str, Any]:
    figures = {"pages_per_s": 7.5, "current_load": 0.5, "leases": 4, "total_crawled": 99, "lag_s": 0.0}
    effort = {"time_s": 10.0, "cpu_s": 2.5}
    about = {"last_seen": NOW - 2, "metadata": {}, "ip_address": "10.0.0.7", "lately": effort}
    return {"node_id": name, "status": status, **figures, **about} | more


def out_of_reach(name: str, error: str = "") -> dict[str, Any]:
    backoff = {"kind": "dns", "error": error, "since": NOW - 60, "tries": 3, "next_try": NOW + 90, "asked": False}
    return host(name, "waiting", next_contact=NOW + 90, backoff={"http": backoff})


def sample(**more: Any) -> Sample:
    totals = {"known": 5_608, "pending": 1_023, "queued": 3, "scheduled": 26, "leased": 994}
    totals |= {"hosts_ready": 0, "hosts_waiting": 3, "hosts_leased": 14, "hosts_in_backoff": 3}
    stats = {
        "time": NOW,
        "state": "running",
        "totals": totals,
        "pages": 4_399,
        "pages_per_s": 11.2,
        "bytes_per_s": 13e3,
    }
    stats |= {"in_flight": 0.3, "lag_s": 0.2, "nodes": {"active": 2}, "statuses": {"200": 4_130, "503": 7}}
    stats |= {"outcomes": {"failed": 9}, "dead_letters": {"http_5xx": 2}, "troubles": [], "stopped": False}
    parts: dict[str, Any] = {
        "stats": stats | more.pop("stats", {}),
        "why": {"idle": False, "reasons": [], "bound_by": [{"code": "politeness", "message": POLITE}]},
        "crawl": {"budgets": {"elapsed_s": 344.0}},
        "history": {"step_s": 5, "samples": [[NOW + 5 * n, 60 * n] for n in range(100)], "marks": []},
        "hosts": [host(f"{number}.example.org", queued=number) for number in range(30)],
        "nodes": [node("n0"), node("n1", "failed", metadata={"failure": "the disk is full"})],
        "causes": [{"kind": "http_5xx", "means": "the site reported an error of its own", "urls": 2}],
        "dead_letters": [
            {"url": "http://a.example/x", "kind": "http_5xx", "last_error": "status 500", "last_failed": NOW}
        ],
    }
    return Sample(**(parts | more))


def lines(view: View | None = None, width: int = 80, height: int = 24, **more: Any) -> list[str]:
    seen = more.pop("seen", None) or Seen(sample(**more))
    drawn = frame(Scene("manual", seen, view or View(), 100.0), width, height)
    return [line.plain for line in drawn.lines]


@pytest.mark.parametrize("pane", ["hosts", "nodes", "failures"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_picture_fills_a_terminal_of_any_size_and_no_more(width: int, height: int, pane: str) -> None:
    for view in (View(pane), View(pane, help=True), View(pane, held=True)):
        drawn = lines(view, width, height)
        assert len(drawn) == height
        assert max(map(cell_len, drawn)) <= width


def test_at_80_columns_there_are_the_sentence_the_figures_a_chart_and_a_list() -> None:
    said = "\n".join(lines())
    assert f"Pages are being fetched. {POLITE[:40]}" in said
    assert "4,399 done · 5,608 URLs known · 1,023 to go" in said
    assert re.search(r"trend +█+ at most 12/s", said)
    assert "2xx 4,130" in said
    assert "3 out of reach" in said
    assert said.splitlines()[-1].startswith("q quit")


def test_the_reason_stands_beside_every_wait_also_on_a_small_screen_with_many_busy_hosts() -> None:
    hosts = [*sample().hosts, host("slow.example", "waiting"), out_of_reach("gone.example")]
    said = "\n".join(lines(hosts=hosts))
    assert re.search(r"slow\.example .* in 9 s: every 15 s\.", said)
    assert re.search(r"gone\.example .* next try in 1 min 30 s: no such host", said)
    assert re.search(r"29\.example\.org .* with n0", said), "the busiest host stands first"


def test_what_sites_and_nodes_say_cannot_control_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\nq"
    drawn = lines(hosts=[out_of_reach(f"h{evil}", evil)], nodes=[node(evil)])
    drawn += lines(View("nodes"), nodes=[node(evil, metadata={"failure": evil})])
    letter = {"url": evil, "kind": "tls", "last_error": evil, "last_failed": NOW}
    drawn += lines(View("failures"), dead_letters=[letter], width=200)
    history = {"step_s": 5, "samples": [], "marks": [{"time": NOW, "text": evil}]}
    drawn += lines(history=history)
    assert not re.search("[\x00-\x1f\x7f]", "".join(drawn))


def test_a_coordinator_that_does_not_answer_is_said_to_be_away_and_its_return_is_an_event() -> None:
    away = lines(seen=Seen(sample(), lost_at=88.0, trouble="No coordinator listens at http://c1:8700."))
    assert away[1].startswith("No answer for 12 s: No coordinator listens at http://c1:8700.")
    assert not any("Pages are being fetched" in line for line in away), "nobody knows whether they are"
    back = lines(seen=Seen(sample(), returns=((NOW, "the coordinator answers again, after 12 s"),)))
    assert any("events" in line and "answers again, after 12 s" in line for line in back)


def test_an_answer_that_takes_long_is_said_to_be_waited_for() -> None:
    scene = Scene("manual", Seen(sample()), View(), 100.0, asked_at=95.0)
    assert frame(scene, 80, 24).lines[1].plain.startswith("No answer for 5 s.")
    assert frame(scene._replace(asked_at=99.0), 80, 24).lines[1].plain.startswith("Pages are being fetched")


def test_a_trouble_is_told_once_and_what_else_is_known_follows() -> None:
    trouble = {"code": "store_full", "message": "The disk is full.", "hint": "Free some space."}
    again = {"code": "store_full", "message": "The disk is full. Free some space. (For 3 s.)"}
    reason = {"code": "politeness", "message": POLITE}
    silent = lines(stats={"troubles": [trouble]}, why={"idle": True, "reasons": [again], "bound_by": []})
    assert silent[1] == "The disk is full. Free some space."
    assert not any("For 3 s" in line or "Pages are being fetched" in line for line in silent)
    fetching = lines(stats={"troubles": [trouble]}, why={"idle": False, "reasons": [], "bound_by": [again, reason]})
    assert fetching[1] == silent[1]
    assert fetching[2].startswith("Pages are being fetched. " + POLITE[:30])


def test_empty_lists_say_so() -> None:
    nothing = sample(hosts=[], nodes=[], causes=[], dead_letters=[])
    assert listing("hosts", nothing, 80).heading.plain == "No host has URLs left."
    assert listing("nodes", nothing, 80).heading.plain == "No node has registered."
    assert listing("failures", nothing, 80).heading.plain == "No URL was given up. 26 failed and will be tried again."


def test_a_failed_node_has_its_reason_beside_it_and_stands_behind_those_at_work() -> None:
    rows = [row.plain for row in listing("nodes", sample(), 120).rows]
    assert rows[0].startswith("n0")
    assert re.search(r"n1 +failed .* the disk is full", rows[1])


def test_one_picture_for_a_file_has_the_whole_list() -> None:
    said = [line.plain for line in picture(Scene("manual", Seen(sample()), View(), 0.0), 120)]
    assert sum("example.org" in line for line in said) == 30
    assert not any(line.startswith("q quit") for line in said)


# Keys


def test_keys_are_read_from_what_terminals_send() -> None:
    assert keys_in("q\x1b[A\x1bOB\t\x1b[6~?") == ["q", "up", "down", "tab", "page down", "?"]
    assert keys_in("\x1b[15~\x1b[1;5Cp") == ["p"], "keys that mean nothing here are passed over"


def test_keys_choose_lists_and_scroll_within_them() -> None:
    view = View()
    view.press("tab", 30, 9)
    assert view.pane == "nodes"
    view.press("back tab", 30, 9)
    view.press("page down", 30, 9)
    view.press("down", 30, 9)
    assert (view.pane, view.first_row) == ("hosts", 10)
    view.press("3", 30, 9)
    assert (view.pane, view.first_row) == ("failures", 0), "each list remembers its own place"
    view.press("1", 30, 9)
    for _ in range(9):
        view.press("page down", 30, 9)
    assert view.first_row == 21, "the last page is full"
    view.press("home", 30, 9)
    view.press("up", 30, 9)
    assert view.first_row == 0


def test_help_is_left_by_any_key_and_the_picture_can_be_held() -> None:
    view = View()
    view.press("?", 3, 9)
    assert "leave; the crawl goes on" in "\n".join(lines(view))
    view.press("p", 3, 9)
    assert (view.help, view.held) == (False, False)
    view.press("p", 3, 9)
    assert lines(view)[1].startswith("Held at")
    view.press("q", 3, 9)
    assert view.over


def test_scrolling_shows_later_rows_and_says_which() -> None:
    view = View(first_rows={"hosts": 12, "nodes": 0, "failures": 0})
    drawn = lines(view)
    assert re.search(r"13–2\d of 30$", drawn[-1])


# The chart


def test_rates_are_differences_of_samples_and_a_gap_has_its_mean() -> None:
    assert rates([[0, 0], [5, 50], [10, 50], [30, 250]], 5.0, 10) == [10.0, 0.0, 10.0, 10.0, 10.0, 10.0]
    assert rates([[0, 0]], 5.0, 10) == []
    assert len(rates([[5 * n, n] for n in range(900)], 5.0, 40)) == 40


def test_a_counter_that_was_lost_is_no_negative_rate() -> None:
    assert rates([[0, 90], [5, 40]], 5.0, 10) == [0.0]


def test_a_chart_is_as_high_as_it_may_be_and_shows_the_smallest_value() -> None:
    assert chart([0, 0.001, 4, 8], 1) == [" ▁▄█"]
    assert chart([4, 8], 2) == [" █", "██"]
    assert chart([0, 0], 2) == ["  ", "  "]


@pytest.mark.parametrize("width", [80, 132])
def test_before_there_are_two_samples_the_chart_says_so(width: int) -> None:
    young = {"step_s": 5, "samples": [[NOW, 3]], "marks": []}
    assert any("the chart begins after some seconds" in line for line in lines(width=width, history=young))


def test_failures_say_if_they_are_not_all_of_them() -> None:
    letter = {"url": "http://a.example/x", "kind": "connect", "last_error": "refused", "last_failed": NOW}
    causes = [{"kind": "connect", "means": "nobody answered", "urls": 2_000}]
    many: dict[str, Any] = {"causes": causes, "dead_letters": [letter] * LETTERS_ASKED}
    assert any("The first 100 of 2,000 by kind and host" in line for line in lines(View("failures"), **many))
    assert max(map(cell_len, lines(View("failures"), 40, 24, **many))) <= 40
    all_of_them: dict[str, Any] = many | {"causes": [causes[0] | {"urls": LETTERS_ASKED}]}
    assert not any("The first" in line for line in lines(View("failures"), **all_of_them))
