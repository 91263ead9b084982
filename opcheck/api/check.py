"""`opcheck.check`: puts one function through all checks, as a spec would."""

from __future__ import annotations

import inspect
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opcheck.api.called import operator_of
from opcheck.api.caller import caller, settings_of
from opcheck.api.report import CheckError, CheckReport
from opcheck.plan.case import Case
from opcheck.plan.kinds import check_kinds
from opcheck.plan.planner import plan
from opcheck.plan.selection import Selection
from opcheck.run.late_imports import import_what_is_late
from opcheck.run.runner import run
from opcheck.run.session import ENGINES, RunSession
from opcheck.samples.operator import as_operator
from opcheck.samples.resolve import Unresolved
from opcheck.samples.results import leaves_of
from opcheck.spec.device import DeviceProfile, profiles
from opcheck.spec.library import Library, Operator
from opcheck.spec.settings import Settings

OWN = ("supports", "dtypes", "checks", "seed", "raise_exception")
"""The keywords of `check` itself."""


@dataclass
class CheckSession(RunSession):
    """The surroundings of one call of `check`."""

    def rerun(self, case: Case) -> str:
        """Return how to run a case alone."""
        seed = f", seed={case.base_seed}" if case.base_seed else ""
        return f'opcheck.check({case.operator.id}, ..., checks="{case.check}"{seed})'


def check(
    function: Callable[..., Any],
    /,
    *args: Any,
    supports: Mapping[str, bool | Sequence[str | int]] | None = None,
    dtypes: str | torch.dtype | Iterable[str | torch.dtype] = (),
    checks: str | Iterable[str] = (),
    seed: int | None = None,
    raise_exception: bool = True,
    **kwargs: Any,
) -> CheckReport:
    """Put a function through all checks at some arguments, as a spec with one sample would.

    Gradients of first and second order in reverse and forward mode, batched gradients, `torch.func.vmap`, undefined
    cotangents, dtypes of gradients, non-determinism, `out=`: each is a claim of its own, true unless `supports` takes
    it back. The arguments are copied first, and what the function leaves changed in the process is put back, and is a
    failure. Nothing is registered and nothing is kept.

    Args:
        function: What is tested. It takes `args` and `kwargs`, and returns a tensor or tensors in tuples, lists,
            dicts, named tuples or dataclasses. Test an in-place function as `lambda x: function(x.clone())`.
        args: Its positional arguments. Tensors, alone or in lists and tuples, have any shape, layout, strides and
            device, and are used with the values they have. Derivatives are taken with respect to those that require
            grad; where none does, with respect to all floating and complex ones. Finite differences need float64 or
            complex128 to be sharp; in float32 tolerances are wide, in half precision there are none.
        kwargs: Its keyword arguments. One that has a name of this list is to be bound by a lambda.
        supports: What it does not support, as in a spec: `{"forward_ad": False}`. `False` is a claim, too: the
            feature must be refused with an error. `{"backward": ["x"]}` names the arguments that have a derivative.
            `out` is false where the signature has no such parameter.
        dtypes: Further dtypes to test in: names, groups such as `"floating"`, or torch's dtypes. Tensors of the dtype
            of the arguments are converted; real ones that are differentiated get random imaginary parts in a complex
            dtype. Derivatives are compared in the most precise real and the most precise complex dtype; in the others
            forward and backward have to work.
        checks: Names of the checks to run. Default: all that apply.
        seed: Another number draws other random directions and imaginary parts. Default: the project's, else 0.
        raise_exception: Whether a claim that does not hold raises `CheckError`.

    Returns:
        A `CheckReport`: outcomes, by check; `report.passed`; and `str(report)` for people.

    Raises:
        CheckError: A claim does not hold or could not be tested. The message is that of a spec's failure; an exception
            of the function is its cause.
        TypeError: `function` cannot be called, or is a class.
        ValueError: There is no tensor among the arguments, a name does not exist, or a check that was asked for has
            nothing to say about these arguments.
        SpecError: `[tool.opcheck]` of the project that the calling file belongs to has a mistake.

    Example:
        >>> import opcheck, torch
        >>> x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
        >>> opcheck.check(torch.sin, x).passed
        True
        >>> opcheck.check(torch.sum, x, dim=0, keepdim=True).passed
        True

        A gradient that is wrong:

        >>> class Cube(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x**3
        ...     @staticmethod
        ...     def backward(ctx, v):
        ...         (x,) = ctx.saved_tensors
        ...         return v * 2 * x**2  # should be 3 x^2
        >>> report = opcheck.check(Cube.apply, x, checks="backward", raise_exception=False)
        >>> print(report.failures[0].fields["diagnosis"][0]["text"])
        output 0 with respect to input 0: the gradient is 2/3 times what it should be
    """
    __tracebackhide__ = True
    asked = {"supports": supports, "dtypes": dtypes, "checks": checks, "seed": seed}
    _refuse(function, [name for name, value in asked.items() if value not in (None, ())])
    place = caller()
    settings = settings_of(None)
    operator = operator_of(function, args, kwargs, supports or {}, _several(dtypes), place)
    chosen = tuple(map(str, _several(checks)))
    number = settings.seed if seed is None else seed
    cases = _planned(operator, _device((args, kwargs), settings), chosen, number)
    if number < 0:
        raise ValueError(f"seed is {number}; expected a whole number of at least 0")
    if any(action == "error" for action, *_ in warnings.filters):
        import_what_is_late()  # a warning that is an error would leave it half done
    session = CheckSession(settings, ENGINES[settings.engine](), callables={operator.id: function})
    outcomes, causes = [], []
    for case in cases:
        outcomes.append(run(case, session))
        causes += [session.cause] if session.cause is not None else []
    report = CheckReport(operator.id, tuple(outcomes))
    if raise_exception and not report.passed:
        raise CheckError(report) from (causes[0] if causes else None)
    return report


def _several(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _refuse(function: Any, given: Iterable[str]) -> None:
    """Raise TypeError for what cannot be tested, ValueError where a keyword may be meant for the function."""
    try:
        as_operator(function, getattr(function, "__qualname__", reprlib.repr(function)))
    except Unresolved as error:
        hint = f'; did you mean "{error.hint}"?' if error.hint else ""
        raise TypeError(f"opcheck.check expects a function: {error}{hint}") from None
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of C code
        return
    for name in given:
        if name in parameters:
            what = f'"{name}" is a keyword of opcheck.check and a parameter of the function'
            raise ValueError(f"{what}: bind the latter by a lambda")


def _planned(operator: Operator, device: DeviceProfile, checks: tuple[str, ...], seed: int) -> list[Case]:
    """Return the cases of a call. Raises ValueError for a check that does not exist, or has no case."""
    library, selection = Library((operator,)), Selection(checks=checks)
    mistakes = selection.mistakes(library)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    cases = plan(library, [device], selection, seed)
    claims = operator.on(device).supports
    for name in checks:
        if not any(case.check == name for case in cases):
            gone = [need for need in check_kinds()[name].needs if not getattr(claims, need)]
            why = f"supports takes back {', '.join(gone)}" if gone else "it says nothing about these arguments"
            raise ValueError(f'the check "{name}" has nothing to test: {why}')
    return cases


def _device(arguments: Any, settings: Settings) -> DeviceProfile:
    """Return the profile of the device that the arguments are on: the first one that is not the CPU, if any."""
    found = [part.device for _, part in leaves_of(arguments) if isinstance(part, torch.Tensor)]
    device = next((device for device in found if device.type != "cpu"), torch.device("cpu"))
    for profile in profiles(settings.device_folders()).values():
        if profile.device_string.partition(":")[0] == device.type:
            return profile.model_copy(update={"torch": str(device)})
    return DeviceProfile(name=device.type, torch=str(device))
