"""TopicRegexRouter: renames the topic by a regular expression, as RegexRouter does.

Owns its names in configs.
"""

from __future__ import annotations

from herdmesh.connect.transforms.confluent import definitions
from herdmesh.connect.transforms.kafka.regex_router import RegexRouter


class TopicRegexRouter(RegexRouter):
    """`io.confluent.connect.cloud.transforms.TopicRegexRouter`, the name for managed connectors."""

    java_class = "io.confluent.connect.cloud.transforms.TopicRegexRouter"
    config_def = definitions.TOPIC_REGEX_ROUTER


class PlainTopicRegexRouter(TopicRegexRouter):
    """The same class under the package of the other transformations."""

    java_class = "io.confluent.connect.transforms.TopicRegexRouter"
