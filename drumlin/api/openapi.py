"""The OpenAPI document, made from the table of routes and the types of their messages, so it always says what the
coordinator does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from drumlin import __version__
from drumlin.access.tokens import ROLES
from drumlin.api.bodies import JSON, MSGPACK
from drumlin.api.messages.people import Error
from drumlin.api.routing import Route
from drumlin.protocol import NODE_ID_PATTERN, paths
from drumlin.store.names import SEGMENT_PATTERN

REFERENCE = "#/components/schemas/{name}"
PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "node_id": {"type": "string", "pattern": NODE_ID_PATTERN},
    "bundle_id": {"type": "string", "pattern": f"^{SEGMENT_PATTERN}$"},
    "host": {"type": "string", "minLength": 1, "maxLength": 300},
}
SIGNATURE_FORM = "^v1 [1-9][0-9]{0,15} [0-9a-f]{32} [0-9a-f]{64}$"
TAGS = {f"{paths.NODES}/": "fleet", f"{paths.SINGLE}/": "single URLs"}
PEOPLE_TAG = "people"
UNSTRUCTURED: dict[type, dict[str, Any]] = {str: {"type": "string"}, dict: {"type": "object"}, bytes: {}}

BAD = {400: "The request cannot be read."}
INVALID = {422: "The request can be read, but something in it is not accepted here."}
BODY = {
    408: "The body came too slowly.",
    413: "The body is too large, compressed or not.",
    415: "The Content-Type or Content-Encoding is not known.",
}
TOKEN = {401: "There is no valid token, or the signature does not match.", 403: "The token does not permit this."}
THROTTLED = {429: "Too fast, or in quarantine; Retry-After says how long to wait."}
LONG_QUERY = {414: "Path and query are too long."}
ANYWHERE = {
    431: "The headers are too large.",
    503: "The coordinator is too busy, or its engine does not answer; Retry-After says how long to wait.",
}


def document(routes: list[Route], *, controlled: bool) -> dict[str, Any]:
    """The document for these routes. `controlled` says whether tokens are asked for."""
    types = {
        kind for route in routes for kind in (route.takes, route.gives) if isinstance(kind, type)
    } - UNSTRUCTURED.keys()
    _, schemas = msgspec.json.schema_components([*types, Error], ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, schemas, controlled=controlled)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "drumlin coordinator",
            "version": __version__,
            "description": "See docs/reference/http-api.md. Every refusal has the same shape: `Error`.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": _portable(schemas)},
    }
    if controlled:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return found


def _operation(route: Route, schemas: Mapping[str, Any], *, controlled: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [next((tag for prefix, tag in TAGS.items() if route.path.startswith(prefix)), PEOPLE_TAG)],
        "parameters": [*_path_parameters(route), *_query_parameters(route, schemas), *_headers(route, controlled)],
        "responses": {str(status): answer for status, answer in _responses(route, controlled)},
    }
    if route.takes is not None and not route.in_query:
        schema = _reference(route.takes)
        operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema} for kind in (JSON, MSGPACK)}}
    if route.streams_body:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    if controlled and route.permission is not None:
        operation["security"] = [{"token": []}]
        roles = ", ".join(sorted(ROLES[route.permission]))
        operation["description"] = f"For tokens of role {roles}."
    return operation


def _operation_id(route: Route) -> str:
    words = [part.strip("{}") for part in route.path.replace("-", "_").replace(".", "_").split("/") if part]
    return "_".join([route.method.lower(), *words])


# What a call takes


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in route.parameter_names:
        yield {"name": name, "in": "path", "required": True, "schema": _portable(PATH_PARAMETERS[name])}


def _query_parameters(route: Route, schemas: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    if route.takes is None or not route.in_query:
        return
    schema = schemas[route.takes.__name__]
    for name, field in schema["properties"].items():
        # Nothing in a query string is null; a field that may be is simply left out.
        options = [one for one in field.get("anyOf", []) if one != {"type": "null"}]
        plain = options[0] if len(options) == 1 else {key: value for key, value in field.items() if key != "default"}
        yield {"name": name, "in": "query", "required": name in schema["required"], "schema": _portable(plain)}


def _headers(route: Route, controlled: bool) -> Iterable[dict[str, Any]]:
    if route.signed and controlled:
        schema = {"type": "string", "pattern": SIGNATURE_FORM}
        yield {"name": paths.SIGNATURE_HEADER, "in": "header", "required": True, "schema": schema}
    if route.streams_body:
        schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
        yield {"name": paths.SHA256_HEADER, "in": "header", "required": True, "schema": schema}


# What it gives


def _responses(route: Route, controlled: bool) -> Iterable[tuple[int, dict[str, Any]]]:
    if route.gives is None:
        yield route.status, {"description": "Done."}
    else:
        schema = _reference(route.gives)
        kinds = {kind: {"schema": schema} if schema else {} for kind in route.gives_media_types}
        yield route.status, {"description": route.summary, "content": kinds}
    if route.may_be_empty:
        yield 204, {"description": "There is nothing just now."}
    error = {kind: {"schema": {"$ref": REFERENCE.format(name=Error.__name__)}} for kind in (JSON, MSGPACK)}
    for status, meaning in sorted(_refusals(route, controlled).items()):
        yield status, {"description": meaning, "content": error}


def _refusals(route: Route, controlled: bool) -> dict[int, str]:
    statuses = dict(ANYWHERE)
    if route.takes is not None or route.parameter_names:
        statuses |= BAD | LONG_QUERY
    if route.takes is not None:
        statuses |= INVALID
    if route.method != "GET":
        statuses |= BODY | BAD
    if route.permission is not None:
        statuses |= THROTTLED | (TOKEN if controlled else {})
    return statuses | dict(route.refusals)


def _reference(kind: type) -> dict[str, Any]:
    return UNSTRUCTURED[kind] if kind in UNSTRUCTURED else {"$ref": REFERENCE.format(name=kind.__name__)}


def _portable(schema: Any) -> Any:
    """The schema with regular expressions as JavaScript has them, which has no `\\Z`."""
    if isinstance(schema, dict):
        return {
            key: value.replace(r"\Z", "$") if key == "pattern" and isinstance(value, str) else _portable(value)
            for key, value in schema.items()
        }
    return [_portable(one) for one in schema] if isinstance(schema, list) else schema
