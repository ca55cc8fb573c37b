"""Model: the vocabulary and rules of the herder's state that need nothing but values.

Owns the immutable vocabulary: values from stores and workers (`values`), events (`events`), instructions
(`instructions`), callers' requests and their answers (`requests`); and two rules over such values alone: when a failed
unit is restarted (`restart_policy`) and which version of a plugin a connector requests (`plugin_versions`). Owns
nothing that a herder remembers: that is `memory`. The vocabulary shared with workers is in `herdmesh.session`.

Other modules import the values from here and the rest from the modules.
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
