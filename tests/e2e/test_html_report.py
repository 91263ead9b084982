"""The page of a real run over two devices, one with planted faults, in a browser: what people do with it, and how.

Each test fails if the page asks for anything but itself, or if the browser complains.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from backends import needs_python_backend
from browser import AXE
from many_cases import many_cases

from opcheck.report.html import rendered

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "backend"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
VIEWS = ["matrix", "cases", "slowest", "untested", "findings", "runs"]
PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True}
FAILED = "torch.tanh::backward[sim-float64]"
CASE = f"#view=cases&case={quote(FAILED)}"

OWN = """
[[operator]]
name    = "torch.sin"
variant = "own"
samples = [{ args = [{ shape = [2] }] }]
  [[operator.expect]]
  when    = { check = "backward", device = "sim", dtype = "float64" }
  outcome = "skip"
  reason  = "https://example.org/issues/7: it takes a day"
"""

pytestmark = needs_python_backend


@pytest.fixture(scope="module")
def real(shared):
    """The page of a run over cpu and sim, whose tanh and dot are wrong."""

    def made(project):
        shutil.rmtree(project.folder)
        shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        project.write("own.toml", OWN)
        options = ("--device", "cpu,sim", "--dtype", "float64,complex128", "--report-json", "report.json")
        checks = "backward,rev_over_rev,vmap,purity,device_consistency"
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("SIM_FAULTS", "gradient,conj")
            ran = project.run(
                "opcheck", "run", "builtin", "own.toml", *options, "--check", checks,
                "--operator", "torch.tanh,torch.cos,torch.dot,torch.sin*own*", "-k", "not method",
            )  # fmt: skip
        assert ran.code == 1, ran.err
        (project.folder / "report.json").rename(project.folder / "kept.json")
        shown = project.run("opcheck", "report", "html", "kept.json", "-o", "page.html")
        assert (shown.code, shown.err) == (0, "")
        return replace(ran, out=(project.folder / "page.html").read_text(encoding="utf-8"))

    return shared("html_report", made).out


def focused(page):
    return page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")


def until(page, condition):
    """Wait for a condition. The policy of the page forbids Playwright's own way of waiting, which evaluates text."""
    for _ in range(200):
        if page.evaluate(f"Boolean({condition})"):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"it does not come true: {condition}")


def width_of(page):
    return page.evaluate("document.documentElement.scrollWidth")


def colors_of(page, picture):
    """How many colors a picture has."""
    return page.evaluate(
        """(k) => {
          const canvas = document.querySelectorAll(".pictures canvas")[k];
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(Array.from(new Uint32Array(data.buffer))).size;
        }""",
        picture,
    )


def reading(page):
    """What is said of the entry at the cursor."""
    return " ".join(page.locator(".readout").inner_text().split())


def axe(page):
    """The violations of the levels A and AA, in short."""
    page.wait_for_timeout(200)  # transitions of colors
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("(levels) => axe.run({ runOnly: { type: 'tag', values: levels } })", LEVELS)
    assert found["passes"], "no rule was applied"
    return [(one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"]) for one in found["violations"]]


# what people look for


def test_the_matrix_has_a_group_of_columns_for_each_device_and_dtype(visit, real):
    page = visit(real)
    assert sorted(page.locator(".group").all_inner_texts()) == [
        "cpu complex128", "cpu float64", "sim complex128", "sim float64",
    ]  # fmt: skip
    assert page.locator(".matrix .name a").all_inner_texts()[0] == "torch.tanh", "the worst operator comes first"
    cell = page.get_by_role("gridcell", name="torch.tanh, backward, sim float64: failed")
    assert cell.inner_text() == "\N{MULTIPLICATION SIGN}"
    right = page.get_by_role("gridcell", name="torch.tanh, backward, cpu float64: passed")
    assert right.inner_text() == "✓"


def test_a_search_narrows_the_cases_and_is_in_the_address(visit, real):
    page = visit(real, "#view=cases")
    page.keyboard.press("/")
    page.keyboard.type("tanh backward SIM")
    page.wait_for_url("**q=tanh+backward+SIM*")
    names = [" ".join(text.split()) for text in page.locator(".list li a").all_inner_texts()]
    assert f"{len(names)} cases" in page.locator(".heading").inner_text()
    assert any("torch.tanh[inplace]" in name for name in names)
    assert all("torch.tanh" in name and "sim" in name for name in names)
    page.get_by_role("link", name="Clear filters").click()
    search = page.get_by_label("Search")
    page.wait_for_function("input => input.value === ''", arg=search.element_handle())  # the page follows its address
    search.fill("nothing is called this")
    page.get_by_text("No case is left by these filters.").wait_for()


def test_filters_narrow_the_cases_together(visit, real):
    page = visit(real, "#view=cases")
    page.get_by_role("button", name="failed").click()
    page.locator("summary", has_text="Device").click()
    page.get_by_label("sim").check()
    page.keyboard.press("Escape")
    page.locator("summary", has_text="Dtype").click()
    page.get_by_label("complex128").check()
    assert "outcome=failed&device=sim&dtype=complex128" in page.url
    rows = page.locator(".list li a").all_inner_texts()
    assert rows
    assert all("sim complex128" in row for row in rows)
    assert page.get_by_role("button", name="failed").get_attribute("aria-pressed") == "true"
    again = visit(real, page.url.partition("#")[2].join(["#", ""]))
    assert again.locator(".list li a").all_inner_texts() == rows, "the address is a link to the view"


def test_a_failure_opens_with_its_evidence_and_back_returns(visit, real):
    page = visit(real, "#view=cases&outcome=failed")
    page.evaluate("scrollTo(0, 60)")
    page.get_by_role("link", name="failed: torch.tanh backward sim float64").first.click()
    page.get_by_role("heading", name=FAILED).wait_for()
    assert "the gradient is 1.01 times what it should be" in page.locator(".finding").inner_text()
    assert page.locator("figcaption").all_inner_texts() == ["Analytical", "Numerical", "Difference"]
    assert all(colors_of(page, k) > 3 for k in range(3))
    assert page.locator(".block pre").first.inner_text().startswith("{ args = [{ shape = ")
    assert f"::{FAILED}'" in page.locator(".block pre").nth(1).inner_text()
    assert page.locator(".elsewhere a").all_inner_texts() != []
    assert focused(page) == FAILED
    page.go_back()
    page.get_by_role("heading", name="Cases").wait_for()
    assert "outcome=failed" in page.url
    until(page, "document.activeElement.tagName === 'A'")
    assert "torch.tanh" in focused(page), "where it was left"
    page.go_forward()
    page.get_by_role("heading", name=FAILED).wait_for()


def test_pictures_tell_their_numbers_on_hover_and_by_keyboard(visit, real):
    page = visit(real, CASE)
    picture = page.locator(".pictures canvas").first
    box = picture.bounding_box()
    columns = int(page.locator(".jacobian .muted").first.inner_text().split()[0])
    side = box["width"] / columns
    page.mouse.move(box["x"] + side * 1.5, box["y"] + side * 0.5)
    assert "Analytical 0 Numerical 0 Difference 0 within tolerance" in reading(page)
    page.mouse.move(box["x"] + side * 1.5, box["y"] + side * 1.5)
    on_the_diagonal = reading(page)
    assert on_the_diagonal.endswith("wrong")
    page.get_by_role("application").focus()
    page.keyboard.press("Home")
    page.keyboard.press("PageUp")
    assert "[0, 0] / d input[0, 0]" in reading(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert reading(page) == on_the_diagonal
    page.keyboard.press("n")
    assert "[0, 2] / d input[0, 2]" in reading(page)
    page.keyboard.press("p")
    assert reading(page) == on_the_diagonal


def test_numbers_are_there_as_a_table_too(visit, real):
    page = visit(real, CASE)
    page.get_by_text("Numbers as tables").click()
    table = page.locator("table.values").nth(2)
    assert table.locator("caption").inner_text() == "Difference"
    assert table.locator("td.wrong").count() == table.locator("tbody tr").count(), "the diagonal"


def test_the_command_can_be_copied(visit, real):
    page = visit(real, CASE, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the command").click()
    page.get_by_text("Copied", exact=True).wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith("opcheck run ")
    assert FAILED in text


def test_what_was_not_run_is_told_with_its_reason(visit, real):
    page = visit(real, "#view=untested")
    assert "https://example.org/issues/7: it takes a day" in page.locator("#view").inner_text()
    page.get_by_role("link", name="1 case: https://example.org/issues/7").click()
    (row,) = page.locator(".list li a").all_inner_texts()
    assert "torch.sin" in row
    assert "sim float64" in row


def test_slow_operators_and_the_run_are_told(visit, real):
    page = visit(real, "#view=slowest")
    assert set(page.locator(".slowest th a").all_inner_texts()) == {
        "torch.tanh",
        "torch.cos",
        "torch.dot",
        "torch.sin[own]",
    }
    page.get_by_role("link", name="The run").click()
    text = page.locator("#runs").inner_text()
    assert "simulated on the CPU" in text
    assert "opcheck run builtin own.toml --device cpu,sim" in text


def test_findings_have_reasons_and_versions_stand_side_by_side(visit):
    page = visit(rendered(many_cases(600)), "#view=findings")
    assert page.locator(".reasons").count() == 2
    assert "https://example.org/issues/12: no derivative at ties" in page.locator(".reasons").nth(1).inner_text()
    page.get_by_role("link", name="Matrix").click()
    groups = page.locator(".group").all_inner_texts()
    assert len(groups) == 8
    assert {text.split()[-1] for text in groups} == {"2.13.0", "2.14.1"}
    assert "has no record of some of its cases" in page.get_by_role("note").inner_text()


# how they get there


def test_all_of_it_works_by_keyboard_alone(visit, real):
    page = visit(real)
    for _ in range(30):
        page.keyboard.press("Tab")
        if focused(page).startswith("torch.tanh, "):
            break
    assert focused(page).startswith("torch.tanh, "), "the first cell is one stop"
    cell = "torch.tanh, backward, sim float64: failed"
    for _ in range(60):
        if focused(page).startswith(cell):
            break
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert not focused(page).startswith("torch.tanh")
    page.keyboard.press("ArrowUp")
    assert focused(page).startswith(cell)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Cases").wait_for()
    until(page, "document.activeElement.tagName === 'H2'")
    for _ in range(6):
        page.keyboard.press("Tab")
        if "failed: torch.tanh" in focused(page):
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=FAILED).wait_for()
    until(page, "document.activeElement.tagName === 'H2'")
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused(page).startswith("Pictures of output 0"):
            break
    before = reading(page)
    page.keyboard.press("n")
    assert reading(page) != before
    page.go_back()  # as Alt and the left arrow do, but for a browser without a window
    until(page, "document.activeElement.closest('.list')")
    page.go_back()  # as Alt and the left arrow do, but for a browser without a window
    page.get_by_role("heading", name="Operators by checks").wait_for()
    until(page, "document.activeElement.closest('.matrix')")
    assert focused(page).startswith(cell)
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.tagName") in ("DIV", "SELECT")


def test_the_list_of_cases_works_by_keyboard(visit):
    page = visit(rendered(many_cases(2_000)), "#view=cases&sort=name")
    page.locator(".list a[tabindex='0']").focus()
    page.keyboard.press("End")
    last = page.evaluate("document.activeElement.parentNode.dataset.place")
    assert last == "1999"
    page.keyboard.press("PageUp")
    assert page.evaluate("document.activeElement.parentNode.dataset.place") == "1987"
    page.keyboard.press("Enter")
    page.locator(".case").wait_for()
    page.go_back()  # as Alt and the left arrow do, but for a browser without a window
    until(page, "document.activeElement.parentNode.dataset.place === '1987'")


def test_menus_open_and_close_by_keyboard(visit, real):
    page = visit(real)
    page.locator("summary", has_text="Device").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.wait_for_url("**device=cpu*")
    page.keyboard.press("Escape")
    assert page.locator("details.menu[open]").count() == 0
    assert focused(page).startswith("Device")


def test_it_is_dark_where_the_system_is_or_where_a_person_says_so(visit, real):
    def lightness(page):
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(",")))

    light, dark = visit(real, CASE, color_scheme="light"), visit(real, CASE, color_scheme="dark")
    assert lightness(dark) < 150 < 600 < lightness(light)
    first = "document.querySelector('.pictures canvas').toDataURL()"
    drawn = light.evaluate(first)
    light.get_by_role("button", name="Dark").click()
    assert lightness(light) == lightness(dark)
    assert light.evaluate(first) != drawn, "pictures are drawn anew"
    light.reload()
    assert lightness(light) == lightness(dark), "the choice is kept"
    light.get_by_role("button", name="Dark").click()
    assert lightness(light) > 600


@pytest.mark.parametrize("fragment", [*(f"#view={view}" for view in VIEWS), CASE])
def test_a_phone_scrolls_down_only(visit, real, fragment):
    page = visit(real, fragment, **PHONE)
    assert width_of(page) == 390
    if fragment.endswith("matrix"):
        frame = page.get_by_role("region", name="Matrix of operators by checks")
        assert frame.evaluate("(node) => node.scrollWidth > node.clientWidth && node.tabIndex === 0")
    if fragment == CASE:
        page.get_by_text("Numbers as tables").click()
        assert width_of(page) == 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fragment", [*(f"#view={view}" for view in VIEWS), CASE])
def test_axe_has_nothing_to_object_to(visit, real, fragment, scheme):
    page = visit(real, fragment, color_scheme=scheme)
    if fragment == CASE:
        page.get_by_text("Numbers as tables").click()
        page.get_by_text("The whole message").click()
    assert axe(page) == []


@pytest.mark.parametrize("view", ["matrix", "cases", "untested", "findings"])
def test_axe_has_nothing_to_object_to_where_all_outcomes_are(visit, view):
    page = visit(rendered(many_cases(1_200)), f"#view={view}", **PHONE)
    assert axe(page) == []
    page.locator("summary").first.click()
    assert axe(page) == []


# what must not happen


HOSTILE = """</script><script>hacked = 1</script><img src=x onerror="hacked = 2"><b onclick='hacked=3'>&lt;"""


@pytest.mark.parametrize("view", VIEWS)
def test_text_is_never_markup(visit, view):
    page = visit(rendered(many_cases(400, HOSTILE)), f"#view={view}")
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img").count() == 0
    if view != "runs":
        assert "<img src=x onerror=" in page.locator("main").inner_text() or view == "untested"


def test_a_failure_with_hostile_text_shows_it(visit):
    page = visit(rendered(many_cases(400, HOSTILE)), "#view=cases&outcome=failed")
    page.locator(".list a").first.click()
    page.locator(".case").wait_for()
    page.get_by_text("The whole message").click()
    for part in ("h2", ".finding", ".jacobian h4", ".block pre >> nth=0", ".message pre"):
        assert HOSTILE in page.locator(f".case {part}").first.inner_text(), part
    assert page.evaluate("typeof hacked") == "undefined"
    assert "NaN" in reading(page) or page.locator(".jacobian canvas").count() == 4


def test_an_address_of_no_case_says_so(visit, real):
    page = visit(real, "#case=torch.gone::backward[cpu-float64]&outcome=nonsense&view=other")
    assert "This report has no case torch.gone::backward[cpu-float64]" in page.locator("main").inner_text()


def test_many_cases_are_shown_as_they_are_scrolled_to(visit):
    page = visit(rendered(many_cases(20_000)), "#view=cases&sort=name")
    assert "20,000 cases" in page.locator(".heading").inner_text()
    assert page.locator(".list li").count() < 100
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.locator(".list li[data-place='19999']").wait_for()
    assert page.locator(".list li").count() < 100
    page.get_by_role("link", name="Matrix").click()
    frame = page.locator(".frame")
    assert page.locator(".matrix .row").count() < 80
    frame.evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    page.locator(".matrix .row[data-row='166']").wait_for()
    assert page.locator(".matrix .row").count() < 80
