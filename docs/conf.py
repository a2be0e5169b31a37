"""How Sphinx builds the documentation: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from docs import pages  # noqa: E402
from losscli import __version__  # noqa: E402

project = "losscli"
author = "the authors of losscli"
copyright = author
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "pages"]
nitpicky = False
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures have them

html_theme = "furo"
html_title = f"losscli {version}"
html_static_path = ["static"]
html_css_files = ["figures.css"]
html_show_sourcelink = False
html_copy_source = False

OUTSIDE = re.compile(r"\[([^]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")
"""A link of a document to a file that is not in `docs`."""
PAGES_OF_FILES = {
    "README.md": "/index.md",
    "CONTRIBUTING.md": "/architecture.md",
    "CHANGELOG.md": "/changelog.md",
}


def _with_links_inside(app: Any, docname: str, content: list[str]) -> None:
    """Point links to files of the repository to pages of the site, or name the file alone."""

    def inside(match: re.Match[str]) -> str:
        text, ups, path = match[1], match[2], match[3]
        if ups.count("/") <= docname.count("/"):
            return match[0]
        if path in PAGES_OF_FILES:
            return f"[{text}]({PAGES_OF_FILES[path]})"
        return f"{text} (`{path}`)" if path not in text else text

    content[0] = OUTSIDE.sub(inside, content[0])


def _write_pages(app: Any) -> None:
    pages.write(DOCS / "generated")


def setup(app: Any) -> None:
    """Connect what happens before the pages are read."""
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _with_links_inside)
