"""The OpenAPI document of the server, and a page that shows it without scripts or other files."""

from html import escape
from typing import Any

from diffclone.deploy.serving.bodies import JSON, MAX_BODY_BYTES, MAX_ROWS, NPY
from diffclone.deploy.serving.metrics import CONTENT_TYPE as METRICS
from diffclone.records import versions

NUMBERS = {"type": "array", "items": {"type": "number"}}
OBSERVATION = {"oneOf": [NUMBERS, {"type": "array", "items": NUMBERS, "minItems": 1, "maxItems": MAX_ROWS}]}
MONITOR = {
    "type": "object",
    "description": "If the policy has a calibrated monitor: a number per score, or a list with one number per row.",
    "additionalProperties": True,
}
ERRORS = {
    "400": "The request is not valid HTTP, JSON or npy, has the wrong shape, or contains NaN or infinity.",
    "401": "The token is missing or wrong.",
    "403": "The Host is unknown, or the request comes from a web page.",
    "404": "The session of X-Session is unknown or has expired.",
    "408": "The request was not complete in time.",
    "409": "X-Step is not the next step of the session, or a step of it is being answered.",
    "411": "There is no Content-Length.",
    "413": f"The request has more than {MAX_ROWS} rows, or its body is above the limit of its type.",
    "415": f"The Content-Type is neither {JSON} nor {NPY}.",
    "500": "The policy or its monitor failed, or the action is not finite.",
    "503": "The server is full. Try again after the seconds in Retry-After.",
}

SESSION = (
    ("X-Session", {"type": "string", "maxLength": 64}, "Name of the client's session, if the policy has a memory."),
    ("X-Step", {"type": "integer", "minimum": 0}, "Step of the episode in this session; 0 begins one."),
    ("X-Monitor", {"const": "episode"}, "Scores and alarms of the episode, with the calibrated window and band."),
)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [name for name in properties if name != "monitor"]}


def _content(**schemas: Any) -> dict[str, Any]:
    types = {"json": JSON, "npy": NPY, "text": METRICS, "html": "text/html"}
    return {"content": {types[name]: {"schema": schema} for name, schema in schemas.items()}}


def _get(summary: str, *, token: bool, **schemas: Any) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "OK", **_content(**schemas)}}
    if token:
        responses["401"] = {"description": ERRORS["401"]}
    return {"get": {"summary": summary, "responses": responses, "security": [{}, {"token": []}] if token else []}}


def openapi_document() -> dict[str, Any]:
    """Return the document. It describes the protocol and nothing of the policy, which /about does."""
    binary, error = {"type": "string", "format": "binary"}, _object(error={"type": "string"})
    failures = {status: {"description": text, **_content(json=error)} for status, text in ERRORS.items()}
    sizes = ", ".join(f"{size // 2**20} MiB as {name}" for name, size in MAX_BODY_BYTES.items())
    act = {
        "summary": "Actions for one observation or for a batch of rows.",
        "description": (
            f"The response has the type of the request. At most {MAX_ROWS} rows and {sizes}. An npy response is the "
            "file of the actions (float32); with a monitor a second npy file follows, with one record per row."
        ),
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": schema, "description": text}
            for name, schema, text in SESSION
        ],
        "requestBody": {"required": True, **_content(json=_object(observation=OBSERVATION), npy=binary)},
        "responses": {
            "200": {"description": "OK", **_content(json=_object(action=OBSERVATION, monitor=MONITOR), npy=binary)},
            **failures,
        },
        "security": [{}, {"token": []}],
    }
    anything = {"type": "object", "additionalProperties": True}
    return {
        "openapi": "3.1.0",
        "info": {"title": "diffclone policy server", "version": versions().get("diffclone", "unknown")},
        "paths": {
            "/act": {"post": act},
            "/about": _get(
                "Method, member, sizes, bounds, data and versions of the policy.", token=True, json=anything
            ),
            "/health": _get("Whether the server runs.", token=False, json=_object(status={"const": "ok"})),
            "/metrics": _get("Counters and histograms for Prometheus.", token=True, text={"type": "string"}),
            "/openapi.json": _get("This document.", token=False, json=anything),
            "/docs": _get("This document as a page.", token=False, html={"type": "string"}),
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{background:#f2f2f2;padding:.1em .3em}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ddd}"
)


def openapi_page(document: dict[str, Any]) -> str:
    """Return the page."""
    title = f"{document['info']['title']} {document['info']['version']}"
    parts = [f"<h1>{escape(title)}</h1><p>As a file: <a href='/openapi.json'>/openapi.json</a>.</p>"]
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            parts.append(f"<h2><code>{verb.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>")
            if "description" in operation:
                parts.append(f"<p>{escape(operation['description'])}</p>")
            if "requestBody" in operation:
                parts.append(f"<p>Request: {_types(operation['requestBody'])}</p>")
            rows = [
                f"<tr><td>{status}</td><td>{escape(response['description'])}</td><td>{_types(response)}</td></tr>"
                for status, response in operation["responses"].items()
            ]
            parts.append(f"<table><tr><th>status</th><th>meaning</th><th>body</th></tr>{''.join(rows)}</table>")
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<body>{''.join(parts)}</body></html>"
    )


def _types(message: dict[str, Any]) -> str:
    return ", ".join(f"<code>{escape(name)}</code>" for name in message.get("content", {}))
