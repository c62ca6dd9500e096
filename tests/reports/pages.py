"""Pages as tests read them: made of records, taken apart into tags and words."""

import re
from html.parser import HTMLParser

from reports import build, record

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags of a page, checked to be balanced, and its visible text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def build_page(path):
    return build.page([record.read(path)])


def page_of(trials):
    run = record.Run({"kind": "run", "schema": 1}, trials, {"seconds": 1.0, "exit_code": 0})
    return build.page([record.Results("run.jsonl", [run])])
