"""The draft of an operator's spec: the claims so far, and the error behind each claim that was taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opcheck.draft.data import SampleData
from opcheck.draft.refusal import is_refusal
from opcheck.spec import dtypes
from opcheck.spec.claims import Dtypes
from opcheck.spec.render import render

MAY_BE_REFUSED = (
    "backward", "forward_ad", "batched_grad", "batched_forward_grad", "second_order", "fwd_over_rev", "rev_over_fwd",
    "fwd_over_fwd", "third_order", "undefined_grad", "vmap", "out", "inplace_backward",
)  # fmt: skip
"""The keys of `supports` that a draft may take back: an operator without them raises an error. The other keys are about
numbers and side effects. A person must judge their failures."""

FIRST_ORDER = ("backward", "forward_ad")
"""The checks that take a dtype out of the draft if they are inconclusive: finite differences are too inaccurate in it.
Derivatives of higher order are less accurate anyway, so inconclusive checks of them do not count."""
WRITES = "The operator changes arguments in place; opcheck passes clones in each call."
DRAWS = "The operator draws random numbers, or a second call gives another result."
UNMADE = "cannot be constructed: "
"""Part of the reason of a case, if the constructor of a module refuses its dtype."""

CUT = "if another argument should have one, something cuts the graph (detach, .data, item(), a conversion)"

MOST = 100
"""The maximum length of a comment, in characters."""


OF_LIBRARY = "torch.library registers no forward mode, and torch gives zeros"
OF_WRITING = "torch.library registers no derivative of an operator that changes its arguments"
"""Why operators of torch.library are not differentiable. They give wrong numbers instead of an error."""

NO_GRAPH, NO_TANGENT = "no output requires grad", "no output has a tangent"
"""Why a call that raises no exception has no derivative in reverse or forward mode."""

Place = int | str
"""An argument, by its position or name. Parameters of a module are arguments, too."""

Written = bool | tuple[str, ...]
"""The arguments that an operator changes: true for the first if it is returned, or nothing is; or their names."""


@dataclass(frozen=True)
class Accepted:
    """A sample that an operator accepts, and the properties of its result."""

    sample: SampleData
    random: bool = False
    """Whether the operator draws random numbers of torch, or a second call gives another result."""
    inplace: Written = False
    """The arguments that the operator changes."""
    without_backward: dict[Place, str] = field(default_factory=dict)
    """Why there is no derivative with respect to each argument: a refusal by backward, or `NO_GRAPH`. Empty if there is
    a derivative, or if backward raises any other error."""
    is_conclusive: bool = True
    """Whether the gradients are conclusive: all are finite, and the largest one is neither zero (up to rounding) nor
    huge, as outside the domain of a function that is clamped."""

    @property
    def requires_grad(self) -> bool:
        """Whether any output requires grad."""
        return any(why != NO_GRAPH for why in self.without_backward.values())


@dataclass
class Draft:
    """What a spec will claim about one operator."""

    name: str
    samples: list[dict[str, Any]]
    module: dict[str, Any] | None = None
    """The key `module` of the spec, which constructs modules of a class; None for a function."""
    variants: list[Any] = field(default_factory=list)
    reseed: bool = False
    inplace: Written = False
    """The arguments that the operator changes."""
    registered: bool = False
    """Whether the operator is an object of torch.library."""
    wrong: str = ""
    """Why the operator gives wrong numbers where it should raise an error. The spec expects that; empty: it raises."""
    supports: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """The claims that were taken back, by key: the value to write and the error message."""
    refused: dict[str, dict[str, str]] = field(default_factory=lambda: {"forward": {}, "backward": {}})
    """The dtypes that are refused in each pass, with the error messages."""
    added: dict[str, set[str]] = field(default_factory=lambda: {"forward": set(), "backward": set()})
    """The dtypes that work in each pass in addition to the default ones, unless a later case refuses them."""
    device: str = ""
    """The only device of the spec, if the CPU refuses the operator; else empty."""
    is_conclusive: bool = True
    """Whether the gradients at any sample are conclusive, see `Accepted`."""
    settled: set[str] = field(default_factory=set)
    """The keys of `supports` that were taken back and then claimed again. They stay claimed, even if checks fail."""

    @classmethod
    def of(
        cls,
        name: str,
        tries: Sequence[Accepted],
        module: dict[str, Any] | None = None,
        variants: Sequence[Any] = (),
        out: bool = True,
    ) -> Draft:
        """Return the draft that follows from successful calls of an operator. out: whether it has a parameter `out`."""
        draft = cls(name, [one.sample for one in tries], module, list(variants))
        draft.reseed = any(one.random for one in tries)
        draft.is_conclusive = any(one.is_conclusive for one in tries)
        draft.inplace = next((one.inplace for one in tries if one.inplace), False)
        if not out:
            draft.supports["out"] = (False, "no such parameter")
        draft._without_backward(tries)
        return draft

    def _without_backward(self, tries: Sequence[Accepted]) -> None:
        """If some arguments have no derivative in any sample, claim backward only for the other arguments."""
        reasons: dict[int | str, list[str]] = {}
        for one in tries:
            for place, why in one.without_backward.items():
                reasons.setdefault(place, []).append(why)
        others = [place for place in reasons if not all(reasons[place])]
        refused = [why for place, why in reasons.items() if place not in others]
        if refused:
            self.supports["backward"] = (others or False, refused[0][0])
        if refused and not any(one.requires_grad for one in tries):
            self.supports["forward_ad"] = (False, NO_TANGENT)  # which its check takes back if it is wrong

    def disclaim_unregistered(self) -> None:
        """Disclaim the derivatives that torch.library cannot register. Cases show whether the operator refuses them."""
        self.registered, self.wrong = True, OF_WRITING if self.inplace else OF_LIBRARY
        for key in ("backward", "forward_ad") if self.inplace else ("forward_ad",):
            self.supports[key] = (False, self.wrong)

    @property
    def backward(self) -> bool | Sequence[int | str]:
        """Whether a backward pass is claimed, or the arguments for which it is claimed."""
        claim: bool | Sequence[int | str] = self.supports.get("backward", (True, ""))[0]
        return claim

    def dtypes(self) -> dict[str, list[str]]:
        """Return the `dtypes` of the spec; empty if the default dtypes are right."""
        claimed, names = {}, Dtypes().forward_names()
        for what, refused in self.refused.items():
            default = names if what == "forward" else tuple(filter(dtypes.is_differentiable, names))
            chosen = {*default, *self.added[what]} - refused.keys()
            names = tuple(name for name in dtypes.KNOWN if name in chosen)
            if names != default:
                claimed[what] = dtypes.grouped(names)
        return claimed

    def revise(self, record: Mapping[str, Any]) -> bool:
        """Take back what the operator refuses, according to the record of a case. Return whether any claim changed.

        Except for constructors, only a `remedy` is followed. Checks give it for refusals, never for wrong numbers. A
        claim that was taken back and turns out to hold is made again, and then stays.
        """
        before = self.toml()
        reason, remedy, feature = record["reason"], record["fields"].get("remedy"), record["fields"].get("feature")
        if record["check"] == "dtypes" and record["outcome"] == "error" and UNMADE in reason:
            self._dtype("forward", f"-{record['dtype']}", what_happened(reason))
        elif isinstance(remedy, dict) and remedy["key"] == "devices":
            self.device = str(remedy["write"])
        elif record["outcome"] in ("failed", "inconclusive", "error") and isinstance(remedy, dict):
            part, _, key = str(remedy["key"]).partition(".")
            if part == "supports" and key in MAY_BE_REFUSED:
                self._support(key, remedy["write"] is True, what_happened(reason))
            elif part == "dtypes" and (record["outcome"] != "inconclusive" or record["check"] in FIRST_ORDER):
                self._dtype(key, str(remedy["write"]), what_happened(reason))
        elif record["outcome"] == "xpassed":
            self.wrong = ""
        elif record["outcome"] == "failed" and record["check"] == "unsupported" and feature in self.supports:
            self._support(feature, works=True)  # wrong numbers are not a refusal: let its own check fail
        return before != self.toml()

    def _support(self, key: str, works: bool, reason: str = "") -> None:
        if works:
            self.supports.pop(key, None)
            self.settled.add(key)
        elif key not in self.settled and is_refusal(reason, key):
            self.supports.setdefault(key, (False, reason.removeprefix("RuntimeError: ")))

    def _dtype(self, key: str, entry: str, reason: str) -> None:
        if not entry.startswith("-"):
            self.added[key].add(entry)
        elif key == "forward" or is_refusal(reason):
            self.refused[key].setdefault(entry.removeprefix("-"), reason)

    def remarks(self) -> Iterator[str]:
        """Yield what a person should know of the draft, in words that follow its id."""
        lacking = [
            f"{key} ({comment(why)})" if key == "backward" else key
            for key, (value, why) in self._taken_back() if key != "out" and value is False
        ]  # fmt: skip
        if lacking:
            yield f"does not support {', '.join(lacking)}"
        if not isinstance(self.backward, bool):
            places = ", ".join(f"argument {one}" if isinstance(one, int) else one for one in self.backward)
            yield f"has gradients of {places} only: {CUT}"
        if not self.is_conclusive:
            yield "has gradients of 0, or infinite ones, at these samples, which show little: give others by --args"
        if self.inplace:
            listed = self.inplace if isinstance(self.inplace, tuple) else ["its first argument"]
            yield f"changes {', '.join(listed)}: inplace = {render(self.inplace)}"

    def _taken_back(self) -> list[tuple[str, tuple[Any, str]]]:
        """Return the items of `supports` in the order of `MAY_BE_REFUSED`."""
        return sorted(self.supports.items(), key=lambda item: MAY_BE_REFUSED.index(item[0]))

    def _refusals(self) -> list[str]:
        """Return a comment for each reason for refusing dtypes. The names of the dtypes make no difference."""
        groups: dict[tuple[str, str], list[str]] = {}
        for what, refused in self.refused.items():
            for name in (name for name in dtypes.KNOWN if name in refused):
                groups.setdefault((what, refused[name].replace(name, "")), []).append(name)
        return [
            f"No {what} pass in {', '.join(names)}: {comment(self.refused[what][names[0]])}"
            for (what, _), names in groups.items()
        ]

    def toml(self) -> str:
        """Return the spec as an `[[operator]]` table, with a comment for each claim that was taken back."""
        rows: list[tuple[str, Any, list[str]]] = [
            ("name", self.name, []),
            ("module", self.module, []),
            ("registered", self.registered, []),
            ("variants", self.variants, []),
            ("devices", [self.device] if self.device else [], ["This operator does not run on the CPU."]),
            ("dtypes", self.dtypes(), self._refusals()),
            ("reseed", self.reseed, [DRAWS]),
            ("inplace", self.inplace, [WRITES]),
        ]
        lines = ["[[operator]]"]
        for key, value, comments in rows:
            if value or (key == "module" and value is not None):  # it may be constructed without arguments
                lines += [*(f"# {line}" for line in comments), f"{key} = {render(value)}"]
        lines += ["samples = [", *(f"  {render(sample)}," for sample in self.samples), "]"]
        if self.supports:
            lines += ["", "  [operator.supports]"]
        for key, (value, reason) in self._taken_back():
            of_others = "" if isinstance(value, bool) else "the others: "
            lines.append(f"  {key} = {render(value)}  # {of_others}{comment(reason)}")
        if self.wrong:
            lines += ["", "  [[operator.expect]]", '  when = { check = "unsupported" }', '  outcome = "fail"']
            lines += ['  match = "gives wrong numbers"', f"  reason = {render(self.wrong)}"]
        return "\n".join(lines) + "\n"


def what_happened(reason: str) -> str:
    """Return the exception in the reason of a record, without the name and the words of the check."""
    if " raised " in reason:
        return reason.partition(" raised ")[2]
    rest = reason.partition(": ")[2] or reason
    for start in ("but the operator refuses the sample: ", "but is refused: ", UNMADE):
        rest = rest.partition(start)[2] or rest
    return rest


def comment(text: str) -> str:
    """Return text as a comment on one line, of at most `MOST` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MOST else f"{line[: MOST - 4].rsplit(' ', 1)[0]} ..."
