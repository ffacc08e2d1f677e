"""One file to its place: compared, then named by its digest. The Hub is its headers and a stream of bytes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from fakes.hub_cache import COMMIT, FILES, NAME, OTHER_COMMIT, WEIGHTS, listed, place
from fakes.hub_server import Blob
from specdec_cli.errors import NotAvailable
from specdec_cli.hub import transfer
from specdec_cli.hub.progress import silent

SNAPSHOT = listed()
FILE = {file.path: file for file in SNAPSHOT.files}
NOTHING_KNOWN: transfer.Known = frozenset()


class Served:
    """What the Hub sends for each file, its ETags, and which files were fetched."""

    def __init__(self) -> None:
        self.bytes = dict(FILES)
        self.commit: str | None = COMMIT
        self.etags = {path: Blob(path, data).etag for path, data in FILES.items()}
        self.fetched: list[str] = []

    def metadata(self, snapshot, file):
        return SimpleNamespace(
            etag=self.etags[file.path],
            commit_hash=self.commit,
            size=len(self.bytes[file.path]),
            location=f"https://cdn.hub.test/{file.path}",
            xet_file_data=None,
        )

    def http_get(self, url, stream, **_):
        path = url.rsplit("/", 1)[-1]
        self.fetched.append(path)
        stream.write(self.bytes[path])


@pytest.fixture
def served(cache, monkeypatch):
    hub = Served()
    monkeypatch.setattr(transfer, "_metadata", hub.metadata)
    monkeypatch.setattr("huggingface_hub.file_download.http_get", hub.http_get)
    return hub


def bring(path: str, known: transfer.Known = NOTHING_KNOWN) -> None:
    transfer.bring(SNAPSHOT, FILE[path], known, silent)


def parts(cache) -> list[str]:
    return [path.name for path in (cache / "models--org--tiny" / "blobs").glob("*.incomplete")]


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_file_comes_to_a_blob_named_by_its_digest_and_a_link_to_it(cache, served, path):
    bring(path)
    pointer = SNAPSHOT.folder / path
    assert pointer.read_bytes() == FILES[path]
    assert str(pointer.readlink()) == f"../../blobs/{FILE[path].digest}"
    assert parts(cache) == []
    assert (cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_a_file_that_is_here_is_not_fetched_twice(served):
    bring(WEIGHTS)
    bring(WEIGHTS)
    assert served.fetched == [WEIGHTS]


def test_bytes_of_another_commit_are_linked_and_not_fetched(cache, served):
    place(cache, commit=OTHER_COMMIT)
    bring("config.json")
    assert (SNAPSHOT.folder / "config.json").read_bytes() == FILES["config.json"]
    assert served.fetched == []


@pytest.mark.parametrize("path", sorted(FILES))
def test_altered_bytes_are_not_kept(cache, served, path):
    served.bytes[path] = b"!" + FILES[path][1:]
    with pytest.raises(NotAvailable, match=f"{path} of {NAME} came altered, and was not kept: "):
        bring(path)
    assert not (SNAPSHOT.folder / path).exists()
    assert list((cache / "models--org--tiny" / "blobs").iterdir()) == []


def test_a_body_that_is_too_long_is_not_kept(cache, served):
    served.bytes[WEIGHTS] += b"!"
    with pytest.raises(NotAvailable, match="is longer than the 1000 bytes that the Hub lists"):
        bring(WEIGHTS)
    assert parts(cache) == []


def test_an_interruption_leaves_no_part(cache, served, monkeypatch):
    def interrupt(url, stream, **_):
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("huggingface_hub.file_download.http_get", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bring(WEIGHTS)
    assert parts(cache) == []


def test_what_is_in_the_files_place_is_replaced_and_not_followed(cache, served, tmp_path):
    pointer = SNAPSHOT.folder / "config.json"
    pointer.parent.mkdir(parents=True)
    pointer.symlink_to(tmp_path / "victim.txt")
    bring("config.json")
    assert pointer.read_bytes() == FILES["config.json"]


def test_a_cache_without_links_holds_the_file_itself(cache, served, monkeypatch):
    monkeypatch.setattr("huggingface_hub.file_download.are_symlinks_supported", lambda folder: False)
    bring("config.json")
    pointer = SNAPSHOT.folder / "config.json"
    assert (pointer.is_symlink(), pointer.read_bytes()) == (False, FILES["config.json"])


def test_a_folder_of_blobs_that_leads_out_is_refused_before_a_byte(cache, served, tmp_path):
    repository = cache / "models--org--tiny"
    repository.mkdir()
    (repository / "blobs").symlink_to(tmp_path)
    with pytest.raises(NotAvailable, match="lies outside the model cache"):
        bring("config.json")
    assert served.fetched == []


# The Hub's headers


@pytest.mark.parametrize("etag", ["../../../../victim.txt", "", "W/abc", "a" * 41])
def test_an_etag_that_is_no_digest_is_refused(served, etag):
    served.etags["config.json"] = etag
    with pytest.raises(NotAvailable, match=r"the Hub gives config\.json of org/tiny the digest "):
        bring("config.json")
    assert served.fetched == []


@pytest.mark.parametrize("commit", [OTHER_COMMIT, "../../x"])
def test_a_file_of_another_commit_is_refused(served, commit):
    served.commit = commit
    with pytest.raises(NotAvailable, match=f"and {COMMIT} was asked for"):
        bring("config.json")


def test_an_answer_without_a_commit_is_no_hubs(served):
    served.commit = None
    with pytest.raises(NotAvailable, match="does not answer like a Hub"):
        bring("config.json")


def test_a_digest_that_the_listing_lacks_comes_from_the_etag(served):
    unknown = replace(FILE["config.json"], git_sha1=None)
    assert transfer.with_digest(SNAPSHOT, unknown) == FILE["config.json"]


def test_a_file_without_any_digest_is_refused(served):
    """Such bytes could be compared with nothing."""
    served.etags["config.json"] = None
    with pytest.raises(NotAvailable, match="the digest None, which is none"):
        transfer.with_digest(SNAPSHOT, replace(FILE["config.json"], git_sha1=None))


# What is here already


def as_listed(folder, path: str, known: transfer.Known = NOTHING_KNOWN) -> bool:
    return transfer.is_as_listed(NAME, FILE[path], folder / path, known)


@pytest.mark.parametrize("path", sorted(FILES))
def test_bytes_that_are_here_are_compared(cache, path):
    folder = place(cache)
    assert as_listed(folder, path)
    (folder / path).resolve().write_bytes(b"!" + FILES[path][1:])
    assert not as_listed(folder, path)


def test_weights_that_a_pull_compared_are_not_read_again(cache):
    folder = place(cache)
    (folder / WEIGHTS).resolve().write_bytes(b"!" * 1000)
    assert as_listed(folder, WEIGHTS, frozenset({(str(FILE[WEIGHTS].digest), 1000)}))


def test_a_file_outside_the_cache_is_not_the_listed_one(cache, tmp_path):
    (tmp_path / "same").write_bytes(FILES[WEIGHTS])
    folder = place(cache)
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(tmp_path / "same")
    assert not as_listed(folder, WEIGHTS)


def test_every_request_counts_as_a_download():
    assert transfer._headers()[constants.X_HF_DOWNLOAD_COUNTER] == "1"
