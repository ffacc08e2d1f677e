"""Which documents are judged, and that nothing of them is learned."""

from __future__ import annotations

import json
import os
import random

import pytest

from specdec_cli.apps.tune import documents
from specdec_cli.apps.tune.documents import PIECE, Document, read_texts, split
from specdec_cli.apps.tune.kept import chat_messages
from specdec_cli.core.errors import UsageError
from specdec_cli.session.conversation import Answer, Conversation, Turn
from specdec_cli.session.kept_chats import kept_folder
from specdec_cli.session.transcript import Transcript, save


def document(number, tokens=200):
    """Random ids, so that two documents share no run of words."""
    draw = random.Random(number)
    return Document(f"text {number:02}", tuple(draw.randrange(1000) for _ in range(tokens)))


DOCUMENTS = [document(number) for number in range(40)]


def names(documents):
    return {one.name for one in documents}


def test_the_split_is_a_function_of_the_seed_and_not_of_the_order():
    assert split(DOCUMENTS, 3) == split(DOCUMENTS[::-1], 3) != split(DOCUMENTS, 4)


@pytest.mark.parametrize("seed", range(20))
def test_no_document_is_in_two_parts_and_none_is_lost(seed):
    found = split(DOCUMENTS, seed)
    parts = [names(part) for part in (found.judged, found.watched, found.trained)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(DOCUMENTS) and all(parts) and not found.dropped


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("changed", [0, 1, 4])
def test_a_judged_document_that_is_planted_among_the_others_is_found(seed, changed):
    """Under another name, with a few words changed, or as a part of a longer text. Control: without it none is."""
    planted = []
    for judged in split(DOCUMENTS, seed).judged:
        ids = list(judged.ids)
        for at in range(changed):
            ids[40 * at + 20] += 1
        planted.append(Document(f"{judged.name} again", (*ids, *document(99, 100).ids) if changed == 4 else tuple(ids)))
    found = split([*DOCUMENTS, *planted], seed)
    both = {one.name.removesuffix(" again") for one in [*found.watched, *found.trained]}
    assert not names(found.judged) & both and not {f"{name} again" for name in names(found.judged)} & both


def test_pieces_are_of_one_length_and_depend_on_seed_and_name():
    one, other = DOCUMENTS[:2]
    assert one.pieces(4, 0) == one.pieces(4, 0) != one.pieces(4, 1) and other.pieces(4, 0) != one.pieces(4, 0)
    text = list(one.ids)
    assert all(len(piece) == PIECE and piece[0] in text for piece in one.pieces(500, 0))
    assert len(document(1, PIECE).pieces(5, 0)) == 1


def test_too_few_documents_and_those_that_only_repeat_what_is_judged_are_refused_with_both_numbers():
    with pytest.raises(UsageError, match="15 documents of more than 64 tokens, and 2 more are shorter; 16 are needed"):
        split([*DOCUMENTS[:15], document(90, 60), document(91, 64)], 0)
    twins = [Document(f"{number}", DOCUMENTS[0].ids) for number in range(40)]
    with pytest.raises(UsageError, match="1 document of more than 64 tokens; 16 are needed"):
        split(twins, 0)
    shared = document(7, 400).ids
    with pytest.raises(UsageError, match="all 15 documents to learn from repeat the 5 to be judged on"):
        split([Document(f"{number}", (*shared, number)) for number in range(20)], 0)


def test_folders_give_their_texts_and_what_is_none_is_left_out_with_a_line(tmp_path):
    for name, data in {"a.md": b"one", "in/b.md": "zwei".encode("utf-16"), ".git/c": b"no", "d.bin": b"\xff"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    told = []
    assert list(read_texts([tmp_path], told.append).values()) == ["one", "zwei"]
    assert told == ["1 file left out: not UTF-8 text, or unreadable"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_of_a_large_file_only_the_beginning_is_read_wherever_it_cuts_a_character(tmp_path, encoding):
    for before in ("", "a", "ab", "abc"):
        file = tmp_path / f"{before}.txt"
        file.write_bytes(f"{before}{'€🙂' * 30_000}".encode(encoding))
        (text,) = read_texts([file], print).values()
        assert len(text) > 19_990 and text == f"{before}{'€🙂' * 10_000}"[: len(text)]


TALK = [{"role": "user", "content": "one"}, {"role": "assistant", "content": [{"type": "text", "text": "two"}]}]
FORMS = [{"text": "one\n\ntwo", "id": "7"}, {"prompt": "one", "completion": "two"}, {"messages": TALK, "tools": ["x"]},
         {"prompt": TALK[:1], "completion": TALK[1:]}, {"instruction": "one", "output": "two", "score": 3},
         {"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]}]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("form", FORMS)
def test_each_record_of_json_lines_is_a_document(tmp_path, form, encoding):
    """`--text train.jsonl` as mlx_lm.lora reads it was one document: "16 are needed"."""
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(form)}\r\n" * 20 + "\n", encoding=encoding, newline="")
    told = list[str]()
    found = read_texts([tmp_path], told.append)
    assert list(found.values()) == ["one\n\ntwo"] * 20 and len(found) == 20 and told == []
    assert next(iter(found)) == f"{tmp_path.resolve() / 'train.jsonl'}:1"


def test_of_records_what_is_damaged_empty_or_too_much_is_left_out_with_a_line(tmp_path, monkeypatch):
    path, told = tmp_path / "a.jsonl", list[str]()
    path.write_text('{"text": "a"}\n{"text": "b"}\n{"text": ""}\n{"te')
    assert list(read_texts([path], told.append).values()) == ["a", "b"]
    monkeypatch.setattr(documents, "MOST_FILES", 3)
    path.write_text('{"text": "a"}\n' * 9)
    assert len(read_texts([path], told.append)) == 3
    assert told == [f"{number} records of {path} are read, and others left out" for number in (2, 3)]


@pytest.mark.parametrize(
    "text", ['{"a": "b"}', '{\n "a": "b"\n}\n', '{"a": "b"}\nwords\n', '["a"]\n["b"]\n', "a\n{}\n{}"]
)
def test_what_is_not_json_lines_is_one_document(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(text)
    assert list(read_texts([tmp_path], print).values()) == [text]


def test_of_many_files_the_first_are_read_and_hidden_folders_are_not_walked(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MOST_FILES", 3)
    os.mkfifo(tmp_path / "0.pipe")  # what has no end is not read
    for name in (".venv/a.py", "__pycache__/a.pyc", *(f"{n}.md" for n in range(5))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    told = list[str]()
    assert list(read_texts([tmp_path], told.append).values()) == ["0.md", "1.md", "2.md"]
    assert told == [f"there are more than 3 files in {tmp_path}: the first 3 are read"]


def test_a_kept_chat_is_a_document_with_all_its_messages_and_a_damaged_one_is_named():
    kept_folder().mkdir(parents=True)
    turns = tuple(Turn(user, Answer(user.upper())) for user in ("one", "two"))
    save(kept_folder() / "a.jsonl", Transcript(Conversation("Be loud.", turns)))
    (kept_folder() / "b.jsonl").write_text("{")
    told = list[str]()
    (messages,) = chat_messages(told.append).values()
    assert [message["content"] for message in messages] == ["Be loud.", "one", "ONE", "two", "TWO"]
    assert len(told) == 1 and "b.jsonl" in told[0]


@pytest.mark.parametrize("seed", range(3))
def test_what_resembles_a_judged_document_is_not_watched_either(seed):
    """The first of the others, which would be watched."""
    found = split(DOCUMENTS, seed)
    near = Document(found.watched[0].name, (*found.judged[0].ids[:-1], 5000))
    again = split([near if one.name == near.name else one for one in DOCUMENTS], seed)
    assert again.judged == found.judged and again.dropped == (near.name,)
    assert near not in (*again.watched, *again.trained) and len(again.watched) == len(found.watched)
