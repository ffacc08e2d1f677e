"""What specdec 0.2.0 wrote is read as it was meant, or left alone; the files under fakes/earlier are its own."""

import json
import shutil
from pathlib import Path

from fakes.command import Command
from specdec_cli.core.trace import read_trace
from specdec_cli.pairs.registry import read_registry
from specdec_cli.session.cost_file import CostFile
from specdec_cli.session.transcript import load

EARLIER = Path(__file__).parents[1] / "fakes/earlier"


def test_its_pairs_are_the_users_pairs(tmp_path, monkeypatch, capsys):
    registry = read_registry(EARLIER / "models.toml", "yours")
    assert registry.default_pair == "mine" and registry.pairs["mine"].draft == "specdec:demo/draft"
    command = Command(tmp_path, monkeypatch, capsys)
    shutil.copy(EARLIER / "models.toml", command.models)
    pairs = json.loads(command("pairs", "--json")[1])
    assert [pair["name"] for pair in pairs if pair["default"]] == ["mine"]


def test_its_costs_are_measured_anew_and_written_over(tmp_path):
    """It kept other figures, which nothing here would read as they were meant."""
    shutil.copy(EARLIER / "costs.json", tmp_path)
    entries = json.loads((tmp_path / "costs.json").read_text())["entries"]
    costs = CostFile(tmp_path / "costs.json")
    assert entries and not any(costs.get(key) for key in entries)
    costs["mine"] = {"at": 1.0}
    assert CostFile(tmp_path / "costs.json").get("mine") == {"at": 1.0}


def test_its_conversation_goes_on(tmp_path, monkeypatch, capsys):
    transcript = load(EARLIER / "talk.jsonl")
    assert [turn.user for turn in transcript.conversation.turns] == ["def f(x):", "and then"]
    shutil.copy(EARLIER / "talk.jsonl", tmp_path)
    code, out, err = Command(tmp_path, monkeypatch, capsys)(
        "chat", "--resume", tmp_path / "talk.jsonl", "-q", "-n", "4", stdin=b"more\n"
    )
    assert code == 0 and out, err
    assert len(load(tmp_path / "talk.jsonl").conversation.turns) == 3


def test_its_trace_is_replayed(tmp_path, monkeypatch, capsys):
    trace = read_trace(EARLIER / "trace.jsonl")
    code, out, _ = Command(tmp_path, monkeypatch, capsys)("replay", EARLIER / "trace.jsonl")
    assert code == 0 and trace and out
