"""How other programs are told of this server (pure), each in the form that its own documentation gives.

The names of the settings are those of November 2026.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

KEY = "SPECDEC_API_KEY"
# What a server without a key gets from clients that insist on one.
ANY_KEY = "specdec"
# Of a pair whose context has no end, for clients that must be told a number; and the longest answers to ask for.
USUAL_CONTEXT, MOST_ANSWER = 32_768, 8192
# What coding agents send with their first word. Claude Code summarizes where less than this and an answer has room.
AGENT_TOKENS, CLAUDE_SPARE_TOKENS = 20_000, 13_000


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address, the model's name and context (tokens); whether it wants a key, and functions can be called.

    `tokens` is the context or a usual one, `answer_tokens` the longest answer to ask for: a quarter of that.
    """

    url: str
    model: str
    context: int | None
    wants_key: bool = False
    tools: bool = True

    @property
    def tokens(self) -> int:
        return self.context or USUAL_CONTEXT

    @property
    def answer_tokens(self) -> int:
        return max(1, min(MOST_ANSWER, self.tokens // 4))

    def key(self, held: str) -> str:
        """Where the key is `held`, or what stands for none."""
        return held if self.wants_key else ANY_KEY


@dataclass(frozen=True, slots=True)
class Client:
    """A program: `place` is where its settings go, `first` what is done before it starts where there is a key.

    An agent needs a context of `least_tokens`. `warning` is what the program says that means nothing here.
    """

    write: Callable[[Address], str]
    place: str
    first: str = f"start it with {KEY} in the environment"
    least_tokens: int = AGENT_TOKENS
    warning: str = ""


# A string of JSON is one of TOML and of YAML, too.
def codex(to: Address) -> str:
    """TOML. Codex speaks /v1/responses alone, and offers a search that only OpenAI's servers can do."""
    lines = [f"model = {json.dumps(to.model)}", 'model_provider = "specdec"', f"model_context_window = {to.tokens}"]
    lines += ['web_search = "disabled"']
    lines += ["", "[model_providers.specdec]", 'name = "specdec"', f"base_url = {json.dumps(to.url + '/v1')}"]
    lines += ['wire_api = "responses"', *([f'env_key = "{KEY}"'] if to.wants_key else [])]
    return "\n".join(lines)


def claude(to: Address) -> str:
    """Shell. Every tier of models is this one."""
    tiers = ("OPUS", "SONNET", "HAIKU", "FABLE")
    models = ["ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in tiers), "CLAUDE_CODE_SUBAGENT_MODEL"]
    values = {"ANTHROPIC_BASE_URL": to.url, **dict.fromkeys(models, to.model)}
    sizes = {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": to.tokens, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": to.answer_tokens}
    values |= {name: str(tokens) for name, tokens in sizes.items()}
    values["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    return _exports(values, "ANTHROPIC_AUTH_TOKEN", to)


def opencode(to: Address) -> str:
    """JSON."""
    limit = {"context": to.tokens, "output": to.answer_tokens}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "specdec",
        "options": {"baseURL": f"{to.url}/v1", "apiKey": to.key(f"{{env:{KEY}}}")},
        "models": {to.model: {"name": to.model, "tool_call": to.tools, "limit": limit}},
    }
    name = f"specdec/{to.model}"
    found = {"model": name, "small_model": name, "provider": {"specdec": provider}}
    return json.dumps({"$schema": "https://opencode.ai/config.json", **found}, indent=2)


def qwen_code(to: Address) -> str:
    """JSON. The key is in a variable in any case; one of the settings' own stands for none."""
    holder = KEY if to.wants_key else "QWEN_LOCAL_KEY"
    sizes = {"contextWindowSize": to.tokens, "samplingParams": {"max_tokens": to.answer_tokens}}
    model = {"id": to.model, "name": to.model, "baseUrl": f"{to.url}/v1", "envKey": holder, "generationConfig": sizes}
    env = {} if to.wants_key else {"env": {holder: ANY_KEY}}
    chosen = {"security": {"auth": {"selectedType": "openai"}}, "model": {"name": to.model}}
    return json.dumps({"modelProviders": {"openai": [model]}, **env, **chosen}, indent=2)


def continue_(to: Address) -> str:
    """YAML."""
    lines = ["name: specdec", "version: 1.0.0", "schema: v1", "models:", f"  - name: {json.dumps(to.model)}"]
    lines += [
        "    provider: openai",
        f"    model: {json.dumps(to.model)}",
        f"    apiBase: {json.dumps(to.url + '/v1')}",
    ]
    lines += [f"    apiKey: {json.dumps(to.key('${{ secrets.' + KEY + ' }}'))}", "    roles: [chat, edit, apply]"]
    lines += ["    capabilities: [tool_use]"] if to.tools else []
    options = {"contextLength": to.tokens, "maxTokens": to.answer_tokens}
    lines += ["    defaultCompletionOptions:", *(f"      {name}: {value}" for name, value in options.items())]
    return "\n".join(lines)


def zed(to: Address) -> str:
    """JSON. The key is never in it: Zed reads the variable that the provider's name gives."""
    able = {"tools": to.tools, "images": False, "parallel_tool_calls": to.tools, "prompt_cache_key": True}
    model = {"name": to.model, "display_name": to.model, "max_tokens": to.tokens}
    model |= {"max_output_tokens": to.answer_tokens, "capabilities": able}
    provider = {"api_url": f"{to.url}/v1", "available_models": [model]}
    default = {"provider": "specdec", "model": to.model}
    models = {"openai_compatible": {"specdec": provider}}
    return json.dumps({"language_models": models, "agent": {"default_model": default}}, indent=2)


def aider(to: Address) -> str:
    """Shell."""
    values = {"OPENAI_API_BASE": f"{to.url}/v1", "AIDER_MODEL": f"openai/{to.model}"}
    values |= {"AIDER_MAX_CHAT_HISTORY_TOKENS": str(to.tokens // 4), "AIDER_SHOW_MODEL_WARNINGS": "false"}
    return _exports(values, "OPENAI_API_KEY", to)


def llm(to: Address) -> str:
    """YAML: an entry of a list. A key is one that llm itself keeps."""
    lines = [f"- model_id: {json.dumps(to.model)}", f"  model_name: {json.dumps(to.model)}"]
    lines += [f"  api_base: {json.dumps(to.url + '/v1')}", *(["  api_key_name: specdec"] if to.wants_key else [])]
    lines += ["  supports_schema: true", *(["  supports_tools: true"] if to.tools else [])]
    return "\n".join(lines)


CLIENTS: Mapping[str, Client] = {
    "codex": Client(
        codex,
        "~/.codex/specdec.config.toml (mkdir -p ~/.codex before); then codex --profile specdec",
        warning="codex will say that it has no metadata for {model}: that does not matter, its context is in here",
    ),
    "claude": Client(
        claude,
        "the shell that then starts claude",
        least_tokens=AGENT_TOKENS + CLAUDE_SPARE_TOKENS + MOST_ANSWER,
    ),
    "opencode": Client(opencode, "opencode.json in the project, or ~/.config/opencode/opencode.json"),
    "qwen-code": Client(qwen_code, "~/.qwen/settings.json, or .qwen/settings.json in the project; then qwen"),
    "continue": Client(continue_, "~/.continue/config.yaml", f"a key goes into ~/.continue/.env as {KEY}=…"),
    "zed": Client(zed, "Zed's settings.json"),
    "aider": Client(aider, "the shell that then starts aider", least_tokens=0),
    "llm": Client(
        llm,
        'extra-openai-models.yaml in the folder that dirname "$(llm logs path)" names; then llm -m {model}',
        f'llm must keep the key: llm keys set specdec --value "${KEY}"',
        least_tokens=0,
    ),
}


def notes(name: str, to: Address) -> list[str]:
    """What a person has to know beside the settings, the place first."""
    client = CLIENTS[name]
    found = [f"this goes into {client.place.format(model=to.model)}"]
    if to.wants_key:
        found.append(client.first)
    elif name == "zed":
        found.append(f"{client.first}: it wants a key, and any will do")
    if client.warning:
        found.append(client.warning.format(model=to.model))
    if to.context is not None and to.context < client.least_tokens:
        found.append(f"{to.model}'s context ({to.context}) is too small for an agent: choose a pair with --pair")
    if client.least_tokens and not to.tools:
        found.append(f"{to.model} calls no functions, which agents need: choose a pair with --pair")
    return found


def _exports(values: Mapping[str, str], key_name: str, to: Address) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    key = '"$' + KEY + '"'
    return "\n".join([lines[0], f"export {key_name}={to.key(key)}", *lines[1:]])
