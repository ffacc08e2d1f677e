"""What the doctor finds on this machine."""

from specdec_cli.audit import doctor


def test_every_line_has_a_name_and_a_value():
    rows = doctor.diagnose()
    names = [name for name, _, _ in rows]
    assert all(name and value for name, value, _ in rows)
    assert {"chip", "computes on", "memory", "specdec", "python", "mlx", "mlx-lm", "model cache"} <= set(names)


def test_a_cache_folder_that_is_not_there_is_said_and_not_made(monkeypatch, tmp_path):
    folder = tmp_path / "none" / "hub"
    monkeypatch.setattr(doctor, "cache_folder", lambda: folder)
    found = {name: (value, note) for name, value, note in doctor.diagnose()}
    assert found["model cache"][0] == str(folder) and found["model cache"][1].startswith("not there yet, ")
    assert not folder.parent.exists()


def test_a_cache_folder_that_cannot_be_written_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    found = {name: note for name, _, note in doctor.diagnose()}
    assert found["model cache"].startswith("exists, ") and found["model cache"].endswith(", not writable")
