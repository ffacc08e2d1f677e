"""The page at `/`: its files are whole and can turn no text into markup; who may have them, and with what headers."""

import re
from html.parser import HTMLParser

import pytest

from fakes.server import local, opened, received
from specdec_cli.apps.serve.http.app import page_files
from specdec_cli.terminal.panel.answer import MEANINGS

FILES = {path: content.decode() for path, content in page_files().items()}
PAGE = FILES["/"]
SCRIPTS = {path: text for path, text in FILES.items() if path.endswith(".js")}


class Page(HTMLParser):
    """Fails on a tag that is closed out of order or never; keeps attributes by tag."""

    VOID = frozenset({"meta", "input", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.inline = [], [], ""

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes), tuple(self.open)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            self.inline += data


@pytest.fixture(scope="module")
def parsed():
    page = Page()
    page.feed(PAGE)
    page.close()
    assert page.open == []
    return page


def test_the_page_and_its_scripts_load_each_other_and_nothing_else(parsed):
    loaded = [at[name] for _, at, _ in parsed.tags for name in ("src", "href") if name in at]
    imported = [f"/page/{name}" for text in SCRIPTS.values() for name in re.findall(r'from "\./([\w.]+)"', text)]
    assert {"/", *loaded, *imported} == set(FILES)
    for text in FILES.values():
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|import\(", text)


def test_nothing_is_written_into_the_page_that_its_policy_forbids(parsed):
    """A handler, a style or a script of the page's own text would need a hole for everybody's."""
    names = {name for _, attributes, _ in parsed.tags for name in attributes}
    assert not parsed.inline.strip() and not {name for name in names if name.startswith("on") or name == "style"}


def test_text_becomes_markup_nowhere():
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|\beval\b|new Function"
    assert not [path for path, text in SCRIPTS.items() if re.search(forbidden, text)]


def test_every_element_that_a_script_names_is_there_once(parsed):
    ids = [attributes["id"] for _, attributes, _ in parsed.tags if "id" in attributes]
    main = SCRIPTS["/page/main.js"]
    listed = re.search(r"= \[(.*)\]\.map\(at\)", main)[1]
    named = set(re.findall(r'\bat\("(\w+)"\)', main)) | set(re.findall(r'"(\w+)"', listed))
    assert len(set(ids)) == len(ids) and named <= set(ids)


def test_the_words_for_the_fates_are_those_of_every_display():
    for kind, meaning in MEANINGS.items():
        assert f'<li class="{kind}" title="{meaning.replace(chr(39), "&#x27;")}">{kind}</li>' in PAGE


KEY = {"host": "0.0.0.0", "key": "secret"}


def test_a_browser_gets_every_file_with_its_type_and_may_do_nothing_with_it_but_ask_this_server(scripted):
    client, _ = scripted(how=local)
    kinds = {"": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for path, content in page_files().items():
        reply = client.get(path)
        headers = reply.headers
        assert reply.content == content
        assert headers["content-type"] == f"{kinds[path.rpartition('.')[2].strip('/')]}; charset=utf-8"
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
        assert policy.pop("form-action") == policy.pop("trusted-types") == "'none'"
        assert policy.pop("require-trusted-types-for") == "'script'" and set(policy.values()) == {"'self'"}
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"


def test_the_page_is_had_without_the_key_and_nothing_else_is(scripted):
    client, _ = scripted(how=local, **KEY)
    assert {client.get(path).status_code for path in FILES} == {200}
    assert [client.get(path).status_code for path in ("/v1/models", "/props", "/metrics", "/page")] == [401] * 4


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/page/../v1/models", "/page/%2e%2e/v1/models", "/page//v1/models", "//v1/models"])
def test_no_spelling_of_an_address_gets_past_the_key(scripted, path):
    url, _ = scripted(**KEY)
    answer, _ = received(opened(url, f"GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n".encode()))
    assert answer.split()[1] in (b"401", b"404") and b"tiny/tool" not in answer
