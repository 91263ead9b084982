"""Samples are added to a spec file as its author writes them, and nothing else of it changes."""

from __future__ import annotations

import pytest

from opcheck.mutation.writing import with_samples, write
from opcheck.planning import load

NEW = "{ args = [{ shape = [257] }], kwargs = { dim = 0 } }"
HEAD = '# A family.\n\n[[operator]]\nname = "torch.sum"  # the sum\n'

LAYOUTS = {
    "one line": (
        "samples = [{ args = [{ shape = [3] }] }]  # few\nnotes = 'n'\n",
        f"samples = [{{ args = [{{ shape = [3] }}] }}, {NEW}]  # few\nnotes = 'n'\n",
    ),
    "lines with a comma": (
        "samples = [\n  { args = [{ shape = [3] }] },  # small\n  # the end\n]\n",
        f"samples = [\n  {{ args = [{{ shape = [3] }}] }},  # small\n  {NEW},\n  # the end\n]\n",
    ),
    "lines without a comma": (
        "samples = [\n  { args = [{ shape = [3] }] }  # small\n]\n",
        f"samples = [\n  {{ args = [{{ shape = [3] }}] }},  # small\n  {NEW},\n]\n",
    ),
    "the bracket after the last": (
        "samples = [{ args = [{ shape = [3] }] },\n           { args = [{ shape = [4] }] }]\n",
        "samples = [{ args = [{ shape = [3] }] },\n           { args = [{ shape = [4] }] }, " + NEW + "]\n",
    ),
    "tables": (
        "  [[operator.samples]] # one\n  args = [{ shape = [3] }] # small\n\n[[operator]]\nname = 'torch.sin'\n"
        "samples = [{ use = 'unary' }]\n",
        "  [[operator.samples]] # one\n  args = [{ shape = [3] }] # small\n\n"
        "  [[operator.samples]]\n  args = [{ shape = [257] }]\n  kwargs = { dim = 0 }\n\n"
        "[[operator]]\nname = 'torch.sin'\nsamples = [{ use = 'unary' }]\n",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sample_is_added_as_the_others_are_written(tmp_path, layout):
    before, after = LAYOUTS[layout]
    path = tmp_path / "spec.toml"
    path.write_bytes((HEAD + before).encode())
    operator, *others = load([path])
    changed = with_samples(HEAD + before, operator, [NEW])
    assert changed == HEAD + after
    path.write_bytes(changed.encode())
    again, *same = load([path])
    assert len(again.samples) == len(operator.samples) + 1
    assert again.samples[-1].toml() == NEW
    assert [len(one.samples) for one in others] == [len(one.samples) for one in same]


def test_samples_of_the_defaults_are_copied_for_the_operator_alone(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(
        "[defaults]\nsamples = [{ use = 'unary', low = 0.5 }]\n\n"
        '[[operator]]\nname = "torch.log"  # natural\ntags = ["a"]\n\n[[operator]]\nname = "torch.sqrt"\n'
    )
    log, sqrt = load([path])
    write([(log, [NEW, NEW.replace("257", "258")]), (sqrt, [])])
    more, same = load([path])
    assert [sample.toml() for sample in more.samples[:-2]] == [sample.toml() for sample in log.samples]
    assert [sample.toml() for sample in more.samples[-2:]] == [NEW, NEW.replace("257", "258")]
    assert len(same.samples) == len(sqrt.samples)
    assert "# natural\nsamples = [\n" in path.read_text()


def test_lines_end_as_before(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_bytes((HEAD + LAYOUTS["lines with a comma"][0]).replace("\n", "\r\n").encode())
    (operator,) = load([path])
    assert write([(operator, [NEW])]) == [path]
    assert path.read_bytes().decode() == (HEAD + LAYOUTS["lines with a comma"][1]).replace("\n", "\r\n")
