"""The script of the documentation site, in a browser: a long table can be searched, and is there without it, too."""

from __future__ import annotations

from pathlib import Path

SCRIPT = (Path(__file__).resolve().parent.parent.parent / "docs" / "tables.js").read_text(encoding="utf-8")


def page_of(rows, script=SCRIPT):
    """A page as MkDocs makes it, with a table of these rows."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr><th>operator</th><th>family</th></tr></thead><tbody>{body}</tbody></table>"
    return f"<!doctype html><title>t</title><article><div>{table}</div></article><script>{script}</script>"


LONG = [(f"torch.f{number}", "unary" if number % 2 else "binary") for number in range(102)]


def shown(page):
    return page.locator("tbody tr:visible")


def test_a_long_table_shows_the_rows_with_all_words(visit):
    page = visit(page_of(LONG))
    assert shown(page).count() == 102
    page.get_by_role("searchbox", name="Search this table").fill(" Unary f10")
    assert shown(page).locator("td:first-child").all_inner_texts() == ["torch.f101"]
    assert page.locator("output").inner_text() == "1 of 102 rows"
    page.get_by_role("searchbox").fill("")
    assert shown(page).count() == 102


def test_the_field_stays_outside_of_what_scrolls_the_table(visit):
    page = visit(page_of(LONG))
    assert page.locator("article > input + output + div > table").count() == 1


def test_pages_that_are_replaced_without_loading_get_it_too(visit):
    stream = "globalThis.document$ = { subscribe: (f) => { globalThis.arrive = f; } };"
    page = visit(page_of(LONG, stream + SCRIPT))
    assert page.get_by_role("searchbox").count() == 0
    page.evaluate("arrive()")
    assert page.get_by_role("searchbox").count() == 1


def test_a_short_table_stays_as_it_is(visit):
    page = visit(page_of(LONG[:100]))
    assert page.get_by_role("searchbox").count() == 0


def test_without_scripts_the_table_is_there(visit):
    page = visit(page_of(LONG), java_script_enabled=False)
    assert shown(page).count() == 102
    assert page.get_by_role("searchbox").count() == 0
