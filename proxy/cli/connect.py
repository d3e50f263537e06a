"""`unabridged connect CLIENT`: how a client is pointed at the proxy, ready to be pasted or evaluated."""

import argparse
import sys
from typing import NamedTuple

from proxy.cli.client import add_server_option, address_of
from proxy.cli.terminal import print_json, table, tell


class _Client(NamedTuple):
    """A client that takes a base URL, and what its users write."""

    title: str
    settings: str
    """In the client's own language, with the proxy's address as ``{server}``."""
    remark: str = "#"
    """How a remark begins in that language."""
    is_managed: bool = True
    """Whether it speaks Chat Completions, which are managed; all else is relayed as it is."""


CLIENTS = {
    "openai": _Client(
        "openai, Python", 'from openai import OpenAI\n\nclient = OpenAI(base_url="{server}/v1")'
    ),
    "openai-node": _Client(
        "openai, npm",
        'import OpenAI from "openai";\n\nconst client = new OpenAI({{ baseURL: "{server}/v1" }});',
        "//",
    ),
    "environment": _Client(
        "whatever reads OPENAI_BASE_URL, as both openai SDKs do", 'export OPENAI_BASE_URL="{server}/v1"'
    ),
    "langchain": _Client(
        "langchain-openai",
        "from langchain_openai import ChatOpenAI\n\n"
        'model = ChatOpenAI(model="gpt-5", base_url="{server}/v1")',
    ),
    "openai-agents": _Client(
        "openai-agents",
        "from agents import Agent, OpenAIChatCompletionsModel\n"
        "from openai import AsyncOpenAI\n\n"
        'client = AsyncOpenAI(base_url="{server}/v1")\n'
        'model = OpenAIChatCompletionsModel(model="gpt-5", openai_client=client)\n'
        'agent = Agent(name="Assistant", model=model)',
    ),
    "pydantic-ai": _Client(
        "pydantic-ai",
        "import os\n\nfrom pydantic_ai import Agent\n\n"
        'os.environ["OPENAI_BASE_URL"] = "{server}/v1"\n'
        'agent = Agent("openai-chat:gpt-5")',
    ),
    "llm": _Client(
        "llm, the command: in its extra-openai-models.yaml",
        '- model_id: unabridged\n  model_name: gpt-5\n  api_base: "{server}/v1"\n  api_key_name: openai',
    ),
    "ai-sdk": _Client(
        "Vercel AI SDK",
        'import {{ createOpenAICompatible }} from "@ai-sdk/openai-compatible";\n\n'
        "const provider = createOpenAICompatible({{\n"
        '  name: "unabridged",\n  baseURL: "{server}/v1",\n  apiKey: process.env.OPENAI_API_KEY,\n}});',
        "//",
    ),
    "qwen-code": _Client(
        "Qwen Code", 'export OPENAI_BASE_URL="{server}/v1"\nqwen --auth-type openai --model gpt-5'
    ),
    "curl": _Client(
        "curl",
        'curl "{server}/v1/chat/completions" \\\n'
        '  -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \\\n'
        """  -d '{{"model": "gpt-5", "messages": [{{"role": "user", "content": "Hello"}}]}}'""",
    ),
    "codex": _Client(
        "Codex: in its config.toml",
        'model_provider = "unabridged"\n\n[model_providers.unabridged]\nname = "unabridged"\n'
        'base_url = "{server}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"',
        is_managed=False,
    ),
    "claude-code": _Client(
        "Claude Code: the proxy's --upstream is then https://api.anthropic.com/v1",
        'export ANTHROPIC_BASE_URL="{server}"',
        is_managed=False,
    ),
}
_RELAYED = "It does not speak Chat Completions: its requests are relayed as they are, nothing is cut or kept."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the client's name; without one, all are listed."""
    parser.epilog = "The model, the API key and all other settings stay as they are."
    parser.add_argument(
        "client", metavar="CLIENT", nargs="?", choices=CLIENTS, help="a client's name (they are listed)"
    )
    add_server_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the settings of one client, or a list of all. Raises UsageError for an address that is no URL."""
    server = address_of(args.server)
    if args.client is None:
        listed = [{"client": name, "title": each.title} for name, each in CLIENTS.items()]
        shown = table(("client", "what it is"), ([*each.values()] for each in listed))
        tell(args, {"clients": listed}, [shown])
        return 0
    client = CLIENTS[args.client]
    settings = client.settings.format(server=server)
    if args.json:
        told = {"client": args.client, "title": client.title, "managed": client.is_managed}
        print_json({**told, "settings": settings})
        return 0
    remarks = [client.title, *([] if client.is_managed else [_RELAYED])]
    sys.stdout.writelines(f"{client.remark} {each}\n" for each in remarks)
    sys.stdout.write(f"{settings}\n")
    return 0
