"""`unabridged schema`: the JSON Schema of policy files, for editors."""

import argparse

from proxy.adapters.plugins import load_plugins
from proxy.cli.terminal import add_json_option, print_json
from proxy.core.policy.policy import Policy

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, which changes nothing here."""
    parser.epilog = (
        "Keep it beside your policies (unabridged schema > policy.schema.json) and begin them with the line "
        "`#:schema ./policy.schema.json`: editors with a TOML language server then complete and check keys."
    )
    add_json_option(parser)


def run(_: argparse.Namespace) -> int:
    """Print the schema, with the installed strategies. Raises PluginError."""
    load_plugins()
    print_json({"$schema": _DIALECT, **Policy.model_json_schema(by_alias=True)})
    return 0
