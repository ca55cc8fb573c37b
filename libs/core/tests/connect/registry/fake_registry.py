"""A FAKE of a Confluent-compatible schema registry: its REST API over HTTP on 127.0.0.1, schemas in memory.

Owns the answers that converters depend on, with the codes of the API reference. Checks backward compatibility of Avro
records only, field by field. The behaviour of a real registry is tested by running the same suite against one.

Invariant: an id never changes its meaning; the same text under two subjects has one id.
"""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import unquote, urlsplit

_PROMOTED = {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"),
             ("float", "double"), ("string", "bytes"), ("bytes", "string")}  # fmt: skip


class FakeRegistry:
    """The registry; `failing` answers everything with that status, `user` demands basic authentication."""

    def __init__(self) -> None:
        self.failing: int | None = None
        self.retry_after = ""
        """The Retry-After header of failing answers; "" = none."""
        self.user: str | None = None
        self.requests: list[str] = []
        self._texts: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Stop the server; later requests get no connection."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and body of the answer."""
        parts = [unquote(one) for one in urlsplit(path).path.split("/")[1:]]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if not 0 < int(number) <= len(self._texts):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, self._texts[int(number) - 1]
            case "GET", ["subjects", subject, "versions", version]:
                ids = self._subjects.get(subject, [])
                at = len(ids) if version == "latest" else int(version)
                if not ids:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                if at > len(ids):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                return 200, {**self._texts[ids[at - 1] - 1], "subject": subject, "version": at, "id": ids[at - 1]}
            case "POST", ["subjects", subject]:
                ids = self._subjects.get(subject)
                if ids is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                for at, known in enumerate(ids, 1):
                    if self._texts[known - 1] == body:
                        return 200, {**body, "subject": subject, "version": at, "id": known}
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "POST", ["subjects", subject, "versions"]:
                if body.get("schemaType", "AVRO") != "PROTOBUF" and not _is_json(body["schema"]):
                    return 422, {"error_code": 42201, "message": "Invalid schema"}
                return self._register(subject, body)
            case "POST", ["compatibility", "subjects", subject, "versions", version]:
                ids = self._subjects[subject]
                ids = ids if version == "latest" else ids[: int(version)]
                reasons = self._reasons(body, ids[-1])
                return 200, {"is_compatible": not reasons, "messages": reasons}
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        ids = self._subjects.get(subject, [])
        if ids and body not in [self._texts[one - 1] for one in ids]:
            reasons = self._reasons(body, ids[-1])
            if reasons:
                return 409, {"error_code": 409, "message": f"Schema being registered is incompatible: {reasons}"}
        if body not in self._texts:
            self._texts.append(body)
        found = self._texts.index(body) + 1
        if found not in ids:
            self._subjects[subject] = [*ids, found]
        return 200, {"id": found}

    def _reasons(self, body: dict[str, Any], latest: int) -> list[str]:
        if body.get("schemaType", "AVRO") != "AVRO":
            return []
        return _incompatible(json.loads(body["schema"]), json.loads(self._texts[latest - 1]["schema"]))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes; waiting costs 40 ms each

            def do_GET(self) -> None:  # the name that http.server calls
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.requests.append(f"{self.command} {self.path}")
                wanted = None if fake.user is None else f"Basic {base64.b64encode(fake.user.encode()).decode()}"
                if fake.failing is not None:
                    status, said = fake.failing, {"error_code": fake.failing * 100 + 1, "message": "as the test wants"}
                elif wanted is not None and self.headers.get("Authorization") != wanted:
                    status, said = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    status, said = fake.answer(self.command, self.path, json.loads(body or b"{}"))
                data = json.dumps(said).encode()
                self.send_response(status)
                if fake.failing is not None and fake.retry_after:
                    self.send_header("Retry-After", fake.retry_after)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815 - the name that http.server calls

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: tests read `requests`."""

        return Handler


def _incompatible(reader: Any, writer: Any) -> list[str]:
    """Reasons why data of the old schema cannot be read with the new one."""
    if isinstance(reader, list) or isinstance(writer, list):
        return [
            f"no member for {old}"
            for old in _members(writer)
            if all(_incompatible(new, old) for new in _members(reader))
        ]
    new, old = _object(reader), _object(writer)
    if new["type"] != old["type"]:
        return [] if (old["type"], new["type"]) in _PROMOTED else [f"{old['type']} became {new['type']}"]
    if new["type"] != "record":
        return []
    olds = {field["name"]: field for field in old["fields"]}
    reasons: list[str] = []
    for field in new["fields"]:
        if field["name"] in olds:
            reasons += _incompatible(field["type"], olds[field["name"]]["type"])
        elif "default" not in field:
            reasons.append(f"{field['name']} has no default")
    return reasons


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _members(schema: Any) -> list[Any]:
    return cast("list[Any]", schema) if isinstance(schema, list) else [schema]


def _object(schema: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {"type": schema}
