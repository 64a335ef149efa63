"""Headings, links, pictures and words of an HTML page."""

import io
from html.parser import HTMLParser


class Outline(HTMLParser):
    """Checks that tags are balanced and collects what the page loads, links to and says."""

    VOID = ("meta", "link", "img", "br", "hr")

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.links, self.images, self.identifiers = [], [], [], [], []
        self.words = io.StringIO()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [found[name] for name in ("src", "srcset", "data") if name in found]
        if tag == "link":
            self.loads.append(found["href"])
        if tag == "a":
            self.links.append(found["href"])
        if tag == "img":
            self.images.append(found["alt"])
        self.identifiers += [found["id"]] if "id" in found else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.write(data)


def outline(text):
    parser = Outline()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def assert_sound(found, n_images, least_words):
    """Assert that a page describes its pictures, loads nothing, and has no identifier twice."""
    assert len(found.images) == n_images
    assert all(len(alternative) > least_words for alternative in found.images)
    assert all(load.startswith("data:") for load in found.loads)
    assert len(found.identifiers) == len(set(found.identifiers))
