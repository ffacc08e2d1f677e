"""What completes a command, and what is never completed."""

from __future__ import annotations

from specdec_cli.chat.completion import suggestions


def words(typed):
    return [found.word for found in suggestions(typed)]


def test_commands_values_pairs_and_files_are_completed(tmp_path, monkeypatch):
    assert words("/s") == ["/system", "/set", "/show", "/stats", "/schema", "/save"]
    assert words("/draft o") == ["on", "off"]
    assert words("/pair dem") == ["demo", "demo-hybrid"]
    assert words("/set te") == ["temp"]
    assert words("/set think h") == ["think hidden"]
    assert words("/k a") == ["auto"]
    (tmp_path / "talk.jsonl").touch()
    (tmp_path / "folder").mkdir()
    assert words(f"/load {tmp_path}/") == [f"{tmp_path}/folder/", f"{tmp_path}/talk.jsonl"]
    monkeypatch.chdir(tmp_path)
    assert words("/load t") == ["talk.jsonl"]
    assert words("/load nowhere/") == []


def test_messages_are_not_completed():
    assert words("hello /s") == [] and words("/system a\nb") == [] and words("/unknown x") == []
