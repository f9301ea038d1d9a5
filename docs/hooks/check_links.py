"""Checks every link of the built site: pages, pictures and anchors. It needs no network; other hosts are left alone."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class Links(HTMLParser):
    """The targets of a page, and the anchors that others can link to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for every element."""
        for name, value in attrs:
            if name in ("id", "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and (tag, ("rel", "canonical")) != ("link", attrs[0]):
                self.targets.append(value or "")


def broken_links(site: Path) -> list[str]:
    """One line for each link that leads nowhere: the page and the target."""
    pages = {page.resolve(): Links(page) for page in sorted(site.rglob("*.html"))}
    return [
        f"{page.relative_to(site.resolve())}: {target}"
        for page, links in pages.items()
        for target in links.targets
        if not leads_somewhere(target, page, pages)
    ]


def leads_somewhere(target: str, page: Path, pages: dict[Path, Links]) -> bool:
    """Whether a target is on another host, or a file of the site that has the anchor."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return True
    found = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if found.is_dir():
        found /= "index.html"
    if found not in pages:
        return found.is_file() and not parts.path.startswith("/")
    return unquote(parts.fragment) in pages[found].anchors


def on_post_build(*, config: Any) -> None:
    """Called by MkDocs when the site is written."""
    site = Path(config.site_dir)
    (site / "404.html").unlink(missing_ok=True)  # its links are absolute, for a server this site does not need
    if broken := broken_links(site):
        from mkdocs.exceptions import PluginError

        raise PluginError("Links that lead nowhere:\n" + "\n".join(broken))
