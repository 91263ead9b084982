"""The draft of an operator's spec: what is claimed so far, and what happened where a claim was taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opcheck.draft.refusal import is_refusal
from opcheck.spec import dtypes

MAY_BE_REFUSED = (
    "backward", "forward_ad", "batched_grad", "batched_forward_grad", "second_order", "fwd_over_rev", "rev_over_fwd",
    "fwd_over_fwd", "third_order", "undefined_grad", "vmap", "out", "inplace_backward",
)  # fmt: skip
"""The keys of `supports` that an operator may lack: asked for them, it raises an error. The other keys are about
numbers and side effects, so a draft leaves their failures to be judged by a person."""

UNMADE = "cannot be constructed: "
"""What is said of a module whose constructor refuses a dtype."""

DEFAULT = ("floating", "complex")


@dataclass
class Draft:
    """What a spec will claim about one operator."""

    name: str
    samples: list[dict[str, Any]]
    module: dict[str, Any] | None = None
    """How it is constructed, if it is a class of modules."""
    variant: str = ""
    """The name of a second entry of the same operator."""
    variants: list[Any] = field(default_factory=list)
    reseed: bool = False
    inplace: bool = False
    """Whether it changes its first argument."""
    supports: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """The disclaimers: a value and what happened, by key."""
    refused: dict[str, dict[str, str]] = field(default_factory=lambda: {"forward": {}, "backward": {}})
    """The dtypes that are refused, and what happened."""
    added: dict[str, set[str]] = field(default_factory=lambda: {"forward": set(), "backward": set()})
    """The dtypes that work besides the default ones."""
    settled: set[str] = field(default_factory=set)
    """What was taken back and claimed again: left as it is from then on, to fail."""

    @property
    def id(self) -> str:
        """What reports call the operator: its name and variant."""
        return f"{self.name}[{self.variant}]" if self.variant else self.name

    @classmethod
    def all_of(cls, name: str, answer: Mapping[str, Any]) -> list[Draft]:
        """Return the drafts for what calls of an operator have shown: two if a module has different modes."""
        second = answer.get("evaluation")
        return [cls.of(name, answer), *([] if second is None else [cls.of(name, second, "eval")])]

    @classmethod
    def of(cls, name: str, answer: Mapping[str, Any], variant: str = "") -> Draft:
        """Return the draft for what calls of an operator have shown."""
        module, inplace = answer.get("module"), answer["inplace"]
        draft = cls(name, answer["samples"], module, variant, answer["variants"], answer["random"], inplace)
        if not answer["out"]:
            draft.supports["out"] = (False, "no such parameter")
        if not answer["backward"]:
            draft.supports["backward"] = (False, "no output requires grad")
            if not answer["forward_ad"]:
                draft.supports["forward_ad"] = (False, "no output has a tangent")
        elif answer["arguments"] is not None:
            draft.supports["backward"] = tuple(answer["arguments"])
        return draft

    def dtypes(self) -> dict[str, list[str]]:
        """Return the `dtypes` of the spec; empty if the default ones hold."""
        claimed = {}
        forward = self._expanded("forward", dtypes.expand(DEFAULT))
        if self.refused["forward"] or self.added["forward"]:
            claimed["forward"] = dtypes.grouped(forward)
        own = [name for name in forward if dtypes.is_differentiable(name)]
        backward = self._expanded("backward", own)
        if set(backward) != set(own):
            claimed["backward"] = dtypes.grouped(backward)
        return claimed

    def _expanded(self, what: str, base: Iterable[str]) -> list[str]:
        chosen = (set(base) | self.added[what]) - set(self.refused[what])
        return [name for name in dtypes.KNOWN if name in chosen]

    def revise(self, records: Iterable[Mapping[str, Any]]) -> bool:
        """Take back what the operator refuses, according to records of a run. Return whether anything changed.

        Only a `remedy` is followed, which a check gives for refusals, never for wrong numbers. A claim that was taken
        back and turns out to hold is made again, and then stays.
        """
        before = (dict(self.supports), str(self.refused), str(self.added))
        for record in records:
            if record["check"] == "dtypes" and record["outcome"] == "error" and UNMADE in record["reason"]:
                self._dtype("forward", f"-{record['dtype']}", what_happened(record["reason"]))
            if record["outcome"] != "failed":
                continue
            remedy, feature = record["fields"].get("remedy"), record["fields"].get("feature")
            if isinstance(remedy, dict):
                part, _, key = str(remedy["key"]).partition(".")
                if part == "supports" and key in MAY_BE_REFUSED:
                    self._support(key, remedy["write"] is True, what_happened(record["reason"]))
                elif part == "dtypes":
                    self._dtype(key, str(remedy["write"]), what_happened(record["reason"]))
            elif record["check"] == "unsupported" and feature in self.supports:
                self._support(feature, works=True)  # it gives wrong numbers elsewhere: a failure, and no refusal
        return before != (dict(self.supports), str(self.refused), str(self.added))

    def _support(self, key: str, works: bool, reason: str = "") -> None:
        if works:
            self.supports.pop(key, None)
            self.settled.add(key)
        elif key not in self.settled and is_refusal(reason, key):
            self.supports.setdefault(key, (False, reason.removeprefix("RuntimeError: ")))

    def _dtype(self, key: str, entry: str, reason: str) -> None:
        name = entry.removeprefix("-")
        if entry.startswith("-") and (key == "forward" or is_refusal(reason)):
            self.refused[key].setdefault(name, reason)
            self.added[key].discard(name)
        elif not entry.startswith("-") and name not in self.refused[key]:
            self.added[key].add(name)


def what_happened(reason: str) -> str:
    """Return what happened: the reason of a record without the name of its check, and what the check says itself."""
    if " raised " in reason:
        return reason.partition(" raised ")[2]
    rest = reason.partition(": ")[2] or reason
    for start in ("but the operator refuses the sample: ", "but is refused: ", UNMADE):
        rest = rest.partition(start)[2] or rest
    return rest
