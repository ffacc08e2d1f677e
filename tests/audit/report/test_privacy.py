"""Names of the person and the machine: replaced wherever a value holds them, and nothing else is."""

from specdec_cli.audit.report.privacy import of_folders, of_this_person, replacements, without_names

FOUND = replacements(("/Users/ada", "/private/Users/ada"), "ada", "adas-mac.local")


def cleaned(text):
    return without_names({"key": [text, 1.5, None, (text,)]}, FOUND)["key"][0]


def test_home_paths_user_and_host_are_replaced_at_any_depth():
    found = without_names({"a": {"b": ["/Users/ada/models/x", 2, None]}, "c": ("on adas-mac.local",)}, FOUND)
    assert found == {"a": {"b": ["~/models/x", 2, None]}, "c": ["on (host)"]}


def test_the_host_is_found_without_its_domain_too():
    assert cleaned("adas-mac and adas-mac.local") == "(host) and (host)"


def test_names_count_as_whole_words_only():
    assert cleaned("ada, adapter, granada, v_ada, ada-2") == "(user), adapter, granada, v_(user), (user)-2"


def test_keys_stay_what_they_are():
    assert without_names({"ada": "ada"}, FOUND) == {"ada": "(user)"}


def test_of_a_models_folder_only_the_last_name_is_kept():
    found = of_folders(["/Volumes/Ada/big", "/Volumes/Ada/big-draft/", "mlx-community/small"])
    text = "/Volumes/Ada/big-draft and /Volumes/Ada/big/x, mlx-community/small"
    assert without_names(text, found) == "…/big-draft and …/big/x, mlx-community/small"


def test_a_missing_name_replaces_nothing():
    assert without_names("a b", replacements(("/",), "", "")) == "a b"


def test_this_persons_own_names_are_known(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    monkeypatch.setattr("getpass.getuser", lambda: "ada-lovelace")
    monkeypatch.setattr("socket.gethostname", lambda: "engine.local")
    found = without_names(f"{tmp_path}/ada/x ada-lovelace engine.local engine", of_this_person())
    assert found == "~/x (user) (host) (host)"
