"""The configuration file. `model` defines its content, `document` reads the YAML, `load` validates it and reports
errors."""

from mirror.service.config.checks.topic_configs import DESTINATION_TOPIC_CONFIGS
from mirror.service.config.cluster import ClusterSettings
from mirror.service.config.errors import ConfigError, ConfigFinding
from mirror.service.config.flow import FlowSettings
from mirror.service.config.kinds import HostPort
from mirror.service.config.load import json_schema, load
from mirror.service.config.model import Config, FlowNotChosen, ResolvedFlow, shell_hint

__all__ = [
    "DESTINATION_TOPIC_CONFIGS",
    "ClusterSettings",
    "Config",
    "ConfigError",
    "ConfigFinding",
    "FlowNotChosen",
    "FlowSettings",
    "HostPort",
    "ResolvedFlow",
    "json_schema",
    "load",
    "shell_hint",
]
