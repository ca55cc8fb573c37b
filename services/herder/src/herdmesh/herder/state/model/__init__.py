"""Model: the words and rules of the herder's state that need nothing but values.

Owns the immutable vocabulary: what the stores and workers report (`values`), what happens (`events`), what the herder
does (`instructions`), what callers request and get (`requests`); and two rules over such values alone: when a failed
unit is restarted (`restart_policy`) and which version of a plugin a connector asks for (`plugin_versions`). Owns
nothing that a herder remembers: that is `memory`. What herder and worker both say is in `herdmesh.session`.

Others import the values from here and the rest from their modules.
"""

from herdmesh.herder.state.model.values import (
    CLASS_KEY,
    HELD_STATES,
    NAME_KEY,
    PLUGIN_VERSION_KEY,
    TASKS_MAX_ENFORCE_KEY,
    TASKS_MAX_KEY,
    AutoRestart,
    ClusterLevel,
    ConnectorEntry,
    ConnectorType,
    Lease,
    LoggerLevel,
    Plugin,
    PluginKind,
    RateUse,
    RefusedPlugin,
    RestartNote,
    RestartPolicy,
    Rules,
    SessionKey,
    StatusEntry,
    TaskProgress,
    Validation,
)

__all__ = [
    "CLASS_KEY",
    "HELD_STATES",
    "NAME_KEY",
    "PLUGIN_VERSION_KEY",
    "TASKS_MAX_ENFORCE_KEY",
    "TASKS_MAX_KEY",
    "AutoRestart",
    "ClusterLevel",
    "ConnectorEntry",
    "ConnectorType",
    "Lease",
    "LoggerLevel",
    "Plugin",
    "PluginKind",
    "RateUse",
    "RefusedPlugin",
    "RestartNote",
    "RestartPolicy",
    "Rules",
    "SessionKey",
    "StatusEntry",
    "TaskProgress",
    "Validation",
]
