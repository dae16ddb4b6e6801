"""Finding routes, reading queries, and the document made of them."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.access.tokens import SECRET_BYTES, OpenAccess, Permission
from drumlin.api.app import CoordinatorApp
from drumlin.api.bodies import JSON
from drumlin.api.calls.metrics import RequestMetrics
from drumlin.api.intake.forms import WEB_URL_PATTERN
from drumlin.api.messages.people import WEB_URL_CHARS_MAX, NodesView
from drumlin.api.openapi import document
from drumlin.api.reference import reference_page
from drumlin.api.routing import Call, Route, Router, Stream, Text, read_query
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines import open_engine
from drumlin.http.refusal import Refused
from drumlin.protocol import Done, paths
from drumlin.urls import canonical
from tests.harness.clocks import still_time


async def nothing(call: Call, message: Any) -> None: ...


async def unheard() -> dict[str, Any]:
    return {}


def route(method: str, path: str, **more: Any) -> Route:
    fields: dict[str, Any] = {"summary": path, "permission": Permission.READ, "gives": Done} | more
    return Route(method=method, path=path, answer=nothing, **fields)


ROUTES = [
    route("GET", "/healthz", permission=None),
    route("POST", "/api/nodes/register"),
    route("GET", "/api/nodes/{node_id}"),
    route("DELETE", "/api/nodes/{node_id}"),
    route("PUT", "/api/nodes/{node_id}/bundles/{bundle_id}"),
    route("GET", "/next", gives_out=True),
]
ROUTER = Router(ROUTES)


def find(method: str, path: str) -> Call:
    scope = {"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "client": None}
    call = Call(scope, {}, unheard, JSON, 0.0)
    ROUTER.find(call)
    return call


def refused(method: str, path: str) -> Refused:
    with pytest.raises(Refused) as caught:
        find(method, path)
    return caught.value


def test_a_path_leads_to_its_route_and_its_parameters() -> None:
    assert find("GET", "/healthz").route is ROUTES[0]
    assert find("POST", "/api/nodes/register").route is ROUTES[1]
    call = find("PUT", "/api/nodes/n1/bundles/b2")
    assert call.parameters == {"node_id": "n1", "bundle_id": "b2"}
    assert call.name == "PUT /api/nodes/{node_id}/bundles/{bundle_id}"


@pytest.mark.parametrize(
    "path",
    ["", "/", "/healthz/", "/api", "/api/nodes", "/api/nodes/", "/api/nodes/a/", "/api/nodes/a/bundles", "//healthz"],
)
def test_an_unknown_path_is_404(path: str) -> None:
    assert (refused("GET", path).status, refused("GET", path).code) == (404, "not_found")


@given(st.text())
def test_no_path_breaks_the_router(path: str) -> None:
    with suppress(Refused):
        assert find("GET", path).route in ROUTES


def test_a_wrong_method_is_405_with_the_methods_that_there_are() -> None:
    wrong = refused("POST", "/api/nodes/a")
    assert (wrong.status, wrong.headers) == (405, [(b"allow", b"DELETE, GET, HEAD")])
    assert refused("HEAD", "/api/nodes/register").status == 405


def test_head_is_what_get_is_unless_that_takes_something_away() -> None:
    assert find("HEAD", "/healthz").route is ROUTES[0]
    assert find("HEAD", "/api/nodes/a").route is ROUTES[2]
    assert refused("HEAD", "/next").headers == [(b"allow", b"GET")]


def test_an_escaped_slash_is_no_slash() -> None:
    for raw in (b"/api%2fnodes/a", b"/api/nodes%2Fa"):
        scope = {"method": "GET", "path": "/api/nodes/a", "raw_path": raw, "query_string": b"", "client": None}
        with pytest.raises(Refused) as caught:
            ROUTER.find(Call(scope, {}, unheard, JSON, 0.0))
        assert (caught.value.status, caught.value.code) == (404, "not_found")


class Query(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    limit: int = 3


@pytest.mark.parametrize("query", [b"name", b"name=a&name=b", b"name=%ff", b"name=\xff", b"&&&"])
def test_a_query_that_cannot_be_read_is_400(query: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_query(query, Query)
    assert (caught.value.status, caught.value.code) == (400, "bad_query")


@pytest.mark.parametrize("query", [b"", b"name=a&limit=x", b"name=a&other=1"])
def test_a_query_that_is_not_what_is_taken_is_422(query: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_query(query, Query)
    assert (caught.value.status, caught.value.code) == (422, "invalid")


def test_a_query_is_read_into_its_type() -> None:
    assert read_query(b"name=a%20b&limit=7", Query) == Query("a b", 7)
    assert read_query(b"name=", Query) == Query("", 3)


def test_the_document_describes_each_call_with_its_refusals() -> None:
    routes = [*ROUTES, route("GET", "/api/list", takes=Query, gives=NodesView, refusals={409: "Why not."})]
    open_document = document(routes, controlled=False)
    assert "securitySchemes" not in open_document["components"]
    made = document(routes, controlled=True)
    listing = made["paths"]["/api/list"]["get"]
    assert {"200", "400", "401", "403", "409", "429"} <= set(listing["responses"])
    assert [parameter["name"] for parameter in listing["parameters"]] == ["name", "limit"]
    assert listing["security"] == [{"token": []}]
    assert "security" not in made["paths"]["/healthz"]["get"]
    assert {"Done", "NodesView", "NodeView", "Error"} <= set(made["components"]["schemas"])


def test_every_operation_has_a_name_of_its_own() -> None:
    made = document(ROUTES, controlled=True)
    names = [operation["operationId"] for path in made["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names) == len(ROUTES)


@given(st.from_regex(re.compile(WEB_URL_PATTERN), alphabet=st.characters(codec="ascii")))
def test_every_url_of_the_documented_form_is_a_web_address(url: str) -> None:
    assert len(url) > WEB_URL_CHARS_MAX or canonical(url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:65535/",
        "https://EXAMPLE.com",
        "http://127.0.0.1:8080/a/b?c=d&e='f'#g",
        "https://[2001:db8::1]:8443/x",
        "http://xn--bcher-kva.example/%C3%A4",
        "http://a_b.example.co.uk/[x];y",
    ],
)
def test_ordinary_urls_have_the_documented_form(url: str) -> None:
    assert re.search(WEB_URL_PATTERN, url)


def test_latencies_are_counted_into_cumulative_buckets() -> None:
    metrics = RequestMetrics()
    for seconds in (0.0005, 0.003, 0.003, 100.0):
        metrics.observe("GET /x", 200, seconds)
    lines = [line for lines in metrics.lines() for line in lines]
    assert 'drumlin_requests_total{route="GET /x",status="200"} 4' in lines
    assert 'drumlin_request_seconds_bucket{route="GET /x",le="0.001"} 1' in lines
    assert 'drumlin_request_seconds_bucket{route="GET /x",le="0.005"} 3' in lines
    assert 'drumlin_request_seconds_bucket{route="GET /x",le="+Inf"} 4' in lines


def test_the_reference_names_every_call_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http-api.md").read_text()
    named = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`?]*)`", page))
    files, all_routes = f"{paths.PAGE_FILES}/", asyncio.run(every_route())
    calls = {(route.method, route.path) for route in all_routes if not route.path.startswith(files)}
    assert named == calls | {("GET", f"{files}…")}


def test_the_page_of_every_call_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "http-calls.md"
    assert page.read_text() == reference_page(), "run `make docs`"


def test_every_call_takes_and_gives_what_its_route_says() -> None:
    for route in asyncio.run(every_route()):
        _, taken, given = get_type_hints(route.answer).values()
        # Where a route has a reader of its own, or a class made at run time, the handler's annotation is wider.
        assert taken in (route.takes or NoneType, Any) or route.takes in get_args(taken), route.path
        assert given in (route.gives or NoneType, Text, Stream) or (
            route.may_be_empty and set(get_args(given)) == {route.gives, NoneType}
        ), route.path


async def every_route() -> list[Route]:
    engine = await open_engine("memory:")
    dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
    app = CoordinatorApp(
        dispatcher, access=OpenAccess(b"s" * SECRET_BYTES), on_failure=print, engine_time=still_time(engine, 0.0)
    )
    return app._router.routes
