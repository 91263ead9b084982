"""`opcheck.run` and `opcheck.check`: run the cases of specs, or of a function with its arguments, in this process."""

from __future__ import annotations

import inspect
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from opcheck.api.called import operator_of
from opcheck.api.plan import seed_of, settings_of, several
from opcheck.api.result import CheckError, CheckReport
from opcheck.planning.case import Case
from opcheck.planning.kinds import check_kinds
from opcheck.planning.planner import plan
from opcheck.planning.selection import Selection
from opcheck.running.outcome import Outcome
from opcheck.running.process_state import preload_lazy_imports
from opcheck.running.runner import run as run_case
from opcheck.running.session import RunSession
from opcheck.samples.captured import module_call
from opcheck.samples.modules import ModuleCall
from opcheck.samples.resolve import Unresolved, as_operator
from opcheck.samples.results import leaves_of
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.library import Library, Operator


def run(cases: Iterable[Case], *, project: str | Path | None = None) -> list[Outcome]:
    """Run cases one after the other, in this process.

    After each case, the settings of the process (grad mode, default dtype, threads, random generators and so on) are
    restored. An operator that crashes or hangs also crashes or hangs this process; the command `opcheck run` does
    not have that problem.

    Args:
        cases: The cases, from `opcheck.plan`.
        project: A folder of the project whose `[tool.opcheck]` to use. Default: the project of the calling file.

    Returns:
        One `Outcome` for each case, in the same order. Failures do not raise: see `outcome.is_bad`.

    Raises:
        TypeError: `cases` contains something that is not a `Case`.
        SpecError: `[tool.opcheck]` has a mistake.

    Example:
        >>> import opcheck
        >>> cases = opcheck.plan(opcheck.load("builtin"), operator="torch.sin", check="backward", device="cpu")
        >>> [outcome.outcome for outcome in opcheck.run(cases[:2])]
        ['passed', 'passed']
    """
    if isinstance(cases, Case):
        raise TypeError("opcheck.run expects an iterable of cases, not a Case: write opcheck.run([case])")
    chosen = list(cases)
    for case in chosen:
        if not isinstance(case, Case):
            raise TypeError(f"opcheck.run expects cases, as opcheck.plan returns them, not {type(case).__name__}")
    session = RunSession(settings_of(project))
    devices = {case.device.name: case.device for case in chosen}
    session.prepare({case.operator.id: case.operator for case in chosen}.values(), devices.values())
    return [run_case(case, session) for case in chosen]


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
    """Run every check on one function, at the given arguments.

    The checks are those of a spec: first and second derivatives in reverse and forward mode, batched gradients,
    `torch.func.vmap`, undefined gradients, gradient dtypes, determinism, `out=` and more. Every feature is expected to
    work unless `supports` says otherwise. The function gets copies of the arguments. If it changes a setting of the
    process, such as grad mode or the default dtype, the setting is restored and the check fails. Nothing is registered
    globally.

    Args:
        function: The function to test, or a module: its parameters that require grad are differentiated, too, and it
            stays in its mode, training or evaluation. It must return a tensor, or tensors in tuples,
            lists, dicts, named tuples or dataclasses. To test an in-place function, wrap it:
            `lambda x: function(x.clone())`.
        args: Positional arguments of the function. Tensors may be of any shape, dtype, layout and device, on their own
            or in lists and tuples. Derivatives are taken with respect to the tensors that require grad or, if none
            does, all floating-point and complex tensors. Prefer float64 and complex128: finite differences in float32
            need wide tolerances, and in half precision they are meaningless.
        kwargs: Keyword arguments of the function. Use a lambda to bind one that has the name of a parameter of `check`.
        supports: Features that the function does not support, with the keys of a spec: `{"forward_ad": False}`. opcheck
            verifies that they raise an error. `{"backward": ["x"]}` lists the arguments that have a derivative. `out`
            defaults to False if the signature has no such parameter, all others default to True.
        dtypes: Further dtypes to test: names, groups such as `"floating"`, or `torch.dtype` objects. Tensors that have
            the dtype of the arguments are converted. Where a real tensor that is differentiated becomes complex, it
            gets random imaginary parts. Derivatives are compared in the most precise real and the most precise complex
            dtype; in other dtypes, values and gradients are compared with those in these two.
        checks: Names of the checks to run. Default: all that apply.
        seed: Seed of random cotangents, directions and imaginary parts. Default: the one in `[tool.opcheck]`, else 0.
        raise_exception: Whether to raise `CheckError` if a check does not pass.

    Returns:
        A `CheckReport` with one outcome for each check and dtype.

    Raises:
        CheckError: A check failed, or could not test anything. The message is that of a failed case of a spec. If the
            function raised an exception, that exception is the cause.
        TypeError: `function` is not callable, or is a class.
        ValueError: No argument is a tensor, a name does not exist, or a check in `checks` does not apply.
        SpecError: `[tool.opcheck]` in the pyproject.toml of the calling file has a mistake.

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
        ...
        ...     @staticmethod
        ...     def backward(ctx, v):
        ...         (x,) = ctx.saved_tensors
        ...         return v * 2 * x**2  # should be 3 x^2
        >>> report = opcheck.check(Cube.apply, x, checks="backward", raise_exception=False)
        >>> print(report.failures[0].fields["diagnosis"][0]["text"])
        output 0 with respect to x: the gradient is 2/3 times what it should be
    """
    __tracebackhide__ = True
    options = {"supports": supports, "dtypes": dtypes, "checks": checks, "seed": seed}
    options["raise_exception"] = None if raise_exception else False
    _refuse(function, [name for name, value in options.items() if value not in (None, ())])
    settings = settings_of(None)
    if isinstance(function, torch.nn.Module) and not isinstance(function, torch.jit.ScriptModule):
        function = module_call(function)
    operator = operator_of(function, args, kwargs, {} if supports is None else supports, several(dtypes))
    chosen = Selection(checks=tuple(map(str, several(checks))), engine=settings.engine)
    number = seed_of(seed, settings)
    cases = _planned(operator, _device((args, kwargs), settings), chosen, number)
    if any(action == "error" for action, *_ in warnings.filters):
        preload_lazy_imports()  # else a warning raised as an error could interrupt these imports
    session = RunSession(settings)
    session.callables[operator.id] = function
    outcomes, causes = [], []
    try:
        for case in cases:
            outcomes.append(run_case(case, session))
            causes += [session.cause] if session.cause is not None else []
    finally:
        if isinstance(function, ModuleCall):
            function.restore()
    report = CheckReport(operator.id, tuple(outcomes))
    if raise_exception and not report.passed:
        raise CheckError(report) from (causes[0] if causes else None)
    return report


def _refuse(function: Any, names: Iterable[str]) -> None:
    """Raise TypeError if the function cannot be tested, ValueError if a keyword may be meant for the function."""
    try:
        as_operator(function, getattr(function, "__qualname__", reprlib.repr(function)))
    except Unresolved as error:
        raise TypeError(f"opcheck.check expects a function: {error.in_full}") from None
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # C code without a signature
        return
    for name in names:
        if name in parameters:
            what = f'"{name}" is a parameter of both opcheck.check and the function'
            raise ValueError(f"{what}: use a lambda to bind the one of the function")


def _planned(operator: Operator, device: DeviceProfile, selection: Selection, seed: int) -> list[Case]:
    """Return the cases of a call. Raises ValueError for a check that does not exist or has no case."""
    library = Library((operator,))
    mistakes = selection.mistakes(library)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    cases = plan(library, [device], selection, seed)
    for name in selection.checks:
        if not any(case.check == name for case in cases):
            claims = operator.on(device).supports
            gone = [need for need in check_kinds()[name].needs if not getattr(claims, need)]
            why = "the check does not apply to these arguments"
            if gone:
                keys = f"{', '.join(gone)} to False; remove the key{'s' * (len(gone) > 1)}"
                why = f"supports sets {keys}, or do not request the check"
            raise ValueError(f'the check "{name}" has nothing to test: {why}')
    return cases


def _device(arguments: Any, settings: Settings) -> DeviceProfile:
    """Return the profile of the device of the arguments: the first device that is not the CPU, else the CPU."""
    devices = [part.device for _, part in leaves_of(arguments) if isinstance(part, torch.Tensor)]
    device = next((device for device in devices if device.type != "cpu"), torch.device("cpu"))
    for profile in settings.profiles.values():
        if profile.device_string.partition(":")[0] == device.type:
            return profile.model_copy(update={"torch": str(device)})
    return DeviceProfile(name=device.type, torch=str(device))
