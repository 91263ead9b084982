"""Cases made of short specs."""

from __future__ import annotations

import pytest

from opcheck.planning import Selection, load, plan
from opcheck.settings import Settings
from opcheck.spec.device_profile import profiles

SPEC = """
[[operator]]
name    = "operators.right.square"
dtypes  = {{ forward = ["float64"] }}
samples = [
  {{ name = "a", args = [{{ shape = [2] }}] }},
  {{ name = "b", args = [{{ shape = [3] }}] }},
  {{ name = "g", grid = {{ x = [1, 2] }} }},
]
{}
"""

EXPECT = """
[[operator.expect]]
when    = {{ check = "backward", {when} }}
outcome = "{outcome}"
reason  = "{reason}"
{match}
"""


@pytest.fixture
def case_of(tmp_path):
    """Return a function that makes the case of `backward` on the CPU in float64, from expectations or a whole spec."""

    def make(*expectations, text=None, device="cpu", check="backward", modules=("torch", "operators")):
        written = [
            EXPECT.format(
                when=f'sample = "{sample}"' if sample else 'variant = "function"',
                outcome=outcome,
                reason=reason,
                match=f"match = '{match[0]}'" if match else "",
            )
            for sample, outcome, reason, *match in expectations
        ]
        path = tmp_path / "spec.toml"
        path.write_text(text or SPEC.format("".join(written)))
        library = load([path], Settings(modules=modules))
        (case,) = plan(library, [profiles()[device]], Selection(checks=(check,), dtypes=("float64",)))
        return case

    return make
