"""Tests of messages in the form of `-o json`."""

from __future__ import annotations

from herdmesh.api.worker.v1 import worker_service_pb2 as worker
from herdmesh.cli.display import views


def test_a_validation_has_the_shape_of_connects_rest_api() -> None:
    known = worker.ConfigField(
        name="tasks.max", type="INT", importance="HIGH", default_value="1", group="Common", width="SHORT", order=4,
        display_name="Tasks max", value="0", errors=["too few"], fixes=["write 1"], visible=True,
    )  # fmt: skip
    unknown = worker.ConfigField(name="extra", value="x", visible=True, order=-1)
    message = worker.ConfigValidation(class_name="C", error_count=1, groups=["Common"], fields=[known, unknown])
    message.warnings.add(name="extra", message="extra has no effect", fix="leave it out")
    assert views.validation(message) == {
        "name": "C",
        "error_count": 1,
        "groups": ["Common"],
        "configs": [
            {
                "definition": {
                    "name": "tasks.max",
                    "type": "INT",
                    "required": False,
                    "default_value": "1",
                    "importance": "HIGH",
                    "documentation": "",
                    "group": "Common",
                    "width": "SHORT",
                    "display_name": "Tasks max",
                    "dependents": [],
                    "order": 4,
                },
                "value": {
                    "name": "tasks.max",
                    "value": "0",
                    "recommended_values": [],
                    "errors": ["too few"],
                    "fixes": ["write 1"],
                    "visible": True,
                },
            },
            {
                "definition": None,
                "value": {
                    "name": "extra",
                    "value": "x",
                    "recommended_values": [],
                    "errors": [],
                    "fixes": [],
                    "visible": True,
                },
            },
        ],
        "warnings": [{"name": "extra", "message": "extra has no effect", "fix": "leave it out"}],
    }
