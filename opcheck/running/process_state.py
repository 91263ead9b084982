"""Settings of the process that affect what operators compute. They are set for a case and restored after it.

Otherwise, a setting that one operator changes would affect the verdicts on later cases.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

from opcheck.devices.device import device_module
from opcheck.devices.generators import generators

MOST_LEFT = 100
"""The maximum number of open contexts of one kind to close."""

State = dict[str, Any]
"""The values of settings, by name."""


@dataclass(frozen=True)
class Setting:
    """A setting of the process, with its getter and setter."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    needed: Any = None
    """The value for every case. None: the value that the process had before the first case."""


def _attribute(name: str, owner: Any, attribute: str) -> Setting:
    return Setting(name, partial(getattr, owner, attribute), partial(setattr, owner, attribute))


def _set_inference_mode(mode: bool) -> None:
    _LEFT_OPEN.enter_context(torch.inference_mode(mode))


_LEFT_OPEN = ExitStack()
"""The inference-mode contexts that stay open: inference mode has no setter, only a context can change it."""


def _default_device() -> torch.device:
    """Return the device of new tensors. torch.get_default_device does not see `with torch.device(...)` in torch 2.6."""
    return torch.empty(0).device


def _set_default_device(device: torch.device) -> None:
    """Set the default device, even if an operator has left a `with torch.device(...)` open."""
    for _ in range(MOST_LEFT):
        # None, not "cpu": a default device, even the CPU, slows down every call of torch.
        torch.set_default_device(None if device.type == "cpu" else device)
        if _default_device() == device:
            return
        torch.device(device).__exit__(None, None, None)


MIXED = "by backend"


def _read_matmul_precision() -> str:
    """Return the precision of matrix products in float32; MIXED if that of backends differs, as torch 2.9 allows."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return MIXED


def _write_matmul_precision(precision: str) -> None:
    # This sets the backends, too, whose own settings follow in SETTINGS.
    torch.set_float32_matmul_precision("highest" if precision == MIXED else precision)


_CUDNN: Any = torch.backends.cudnn
_CUDA: Any = torch.backends.cuda
_MKLDNN: Any = torch.backends.mkldnn
_INVARIANTS: Any = torch.sparse.check_sparse_tensor_invariants


def _set_invariants(checked: bool) -> None:
    (_INVARIANTS.enable if checked else _INVARIANTS.disable)()


BACKENDS: dict[str, Any] = {
    "": torch.backends,
    " of cuDNN": _CUDNN,
    " of matmul on CUDA": _CUDA.matmul,
    **{f" of {op} in oneDNN": getattr(_MKLDNN, op, None) for op in ("matmul", "conv", "rnn")},
}
"""The objects with the precision of float32 since torch 2.9, by words: general ones first, whose values others take."""
CUDNN = ("enabled", "benchmark", "deterministic")
"""The flags of cuDNN that choose its kernels."""
ATTENTION = ("flash", "mem_efficient", "math")
"""The kernels of scaled dot product attention that may be switched off, on the CPU too."""
RECURSION_LIMIT = 2000
"""The recursion limit that torch's compiler sets, and does not restore, if the limit was lower."""
SETTINGS = (
    Setting("inference mode", torch.is_inference_mode_enabled, _set_inference_mode, False),  # sets the grad mode, too
    Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled, True),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("default device", _default_device, _set_default_device),
    # Tensors are tiny: more threads would cost more time than they save.
    Setting("threads", torch.get_num_threads, torch.set_num_threads, 1),
    Setting("deterministic debug mode", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    Setting(
        "anomaly mode",
        torch.is_anomaly_enabled,
        lambda mode: torch.autograd.set_detect_anomaly(mode, torch.is_anomaly_check_nan_enabled()),
        False,
    ),
    Setting(
        "anomaly checks nan",
        torch.is_anomaly_check_nan_enabled,
        lambda check: torch.autograd.set_detect_anomaly(torch.is_anomaly_enabled(), check),
    ),
    Setting("matmul precision", _read_matmul_precision, _write_matmul_precision),
    *(
        _attribute(f"float32 precision{where}", own, "fp32_precision")
        for where, own in BACKENDS.items()
        if hasattr(own, "fp32_precision")
    ),
    _attribute("oneDNN enabled", _MKLDNN, "enabled"),
    Setting(
        "autocast dtype on cpu", partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu")
    ),
    _attribute("filling of uninitialized memory", torch.utils.deterministic, "fill_uninitialized_memory"),
    Setting("checks of sparse tensors", _INVARIANTS.is_enabled, _set_invariants),
    Setting("warn always", torch.is_warn_always_enabled, torch.set_warn_always),
    *(_attribute(f"{name} in cuDNN", _CUDNN, name) for name in CUDNN),
    *(
        Setting(f"{name} attention", getattr(_CUDA, f"{name}_sdp_enabled"), getattr(_CUDA, f"enable_{name}_sdp"))
        for name in ATTENTION
    ),
    Setting("flush denormal", lambda: sys.float_info.min * 0.5 == 0, torch.set_flush_denormal),
    Setting("recursion limit", lambda: max(sys.getrecursionlimit(), RECURSION_LIMIT), sys.setrecursionlimit),
)


def _read_tf32() -> bool | tuple[str, str]:
    """Return whether cuDNN may use TF32, or the precisions of its convolutions and recurrent layers if these differ."""
    try:
        return bool(_CUDNN.allow_tf32)
    except RuntimeError:  # set separately, which torch 2.9 made possible
        return _CUDNN.conv.fp32_precision, _CUDNN.rnn.fp32_precision


def _write_tf32(allowed: bool | tuple[str, str]) -> None:
    if isinstance(allowed, tuple):
        _CUDNN.conv.fp32_precision, _CUDNN.rnn.fp32_precision = allowed
    else:
        _CUDNN.allow_tf32 = allowed


_TF32 = Setting("TF32 in cuDNN", _read_tf32, _write_tf32, False)
"""TF32 is on by default. Convolutions and recurrent layers in float32 may then keep only 10 of 23 mantissa bits,
depending on the kernel that cuDNN chooses."""


@lru_cache(maxsize=16)
def _settings_on(device: str) -> tuple[Setting, ...]:
    """Return the settings for cases on a device: the common ones, TF32 on CUDA, autocast on the CPU and the device."""
    own = torch.device(device).type
    by_kind = (_TF32,) if own == "cuda" else ()
    kinds = ("cpu", own) if own != "cpu" and torch.amp.is_autocast_available(own) else ("cpu",)
    autocast = (
        Setting(
            f"autocast on {kind}",
            partial(torch.is_autocast_enabled, kind),
            partial(torch.set_autocast_enabled, kind),
            False,
        )
        for kind in kinds
    )
    return (*SETTINGS, *by_kind, *autocast)


def read(device: str = "cpu") -> State:
    """Return the current values of the settings for cases on a device (torch's device string)."""
    return {setting.name: setting.read() for setting in _settings_on(device)}


def write(state: State, device: str = "cpu") -> None:
    """Set settings to the given values. A setting that already has its value is not set again."""
    for setting in _settings_on(device):
        if setting.read() != state[setting.name]:
            setting.write(state[setting.name])


def for_cases(start: State, device: str = "cpu") -> State:
    """Return the values of settings that cases on a device run with. start: the values before the first case."""
    settings = _settings_on(device)
    return {one.name: start[one.name] if one.needed is None else one.needed for one in settings}


def changes(before: State, now: State) -> list[str]:
    """Return a description of each setting that has changed, as in "grad mode False instead of True"."""
    return [f"{name} {now[name]} instead of {value}" for name, value in before.items() if now[name] != value]


@contextmanager
def applied(start: State, device: str = "cpu") -> Iterator[list[str]]:
    """Apply the settings that cases on a device run with, and restore the previous ones on exit.

    Yield a list, to which descriptions of what the body has changed are added on exit. The states of the random number
    generators of the host and the device are restored but not listed, since an operator may draw numbers.

    start: the settings before the first case.
    """
    left: list[str] = []
    before, drawn_from = read(device), list(_generators(device))
    # torch emits most warnings once per process. If warnings are errors, only the first case would fail.
    are_errors = any(action == "error" for action, *_ in warnings.filters)
    state = {**for_cases(start, device), "warn always": are_errors}
    write(state, device)
    try:
        with _open_streams() as closed:
            yield left
    finally:
        left += [f"{name} closed" for name in sorted(closed)]
        left += _close_contexts()
        left += changes(state, read(device))
        write(before, device)
        for put_back, numbers in drawn_from:
            try:
                put_back(numbers)
            except Exception as error:  # for example, the operator has broken the device
                left.append(f"the random generator of {device} in a state that cannot be restored: {error}")


@contextmanager
def _open_streams() -> Iterator[set[str]]:
    """Keep the standard streams open, which the process needs afterwards. Yield which the body closes."""
    closed = set[str]()
    streams: dict[str, Any] = {"standard output": sys.stdout, "standard error": sys.stderr}
    for name, stream in streams.items():
        with suppress(AttributeError):  # None, or an object that takes no attributes
            stream.close = partial(closed.add, name)
    try:
        yield closed
    finally:
        for stream in streams.values():
            with suppress(AttributeError):
                del stream.close


def _generators(device: str) -> Iterator[tuple[Callable[[Any], object], Any]]:
    """Yield a setter for each random number generator that a case may use, and the state of the generator."""
    for one in generators():
        yield one.write, one.read()
    module = device_module(device)
    if hasattr(module, "get_rng_state") and hasattr(module, "set_rng_state"):
        with suppress(Exception):  # the device is broken, which its cases report
            yield module.set_rng_state, module.get_rng_state()


HOOKS, DUAL_LEVEL = "saved-tensor hooks on", "a dual level open"


def open_contexts() -> list[str]:
    """Return a description of each open context that would make derivatives wrong."""
    contexts = []
    try:
        with disable_saved_tensors_hooks("asked by opcheck"):
            pass
    except RuntimeError:  # hooks are active
        contexts.append(HOOKS)
    try:
        with forward_ad.dual_level():
            pass
    except RuntimeError:  # a level is open, and levels do not nest
        contexts.append(DUAL_LEVEL)
    return contexts


def _close_contexts() -> list[str]:
    """Close the contexts that an operator left open. Return a description of each kind of context that was open."""
    contexts = open_contexts()
    if DUAL_LEVEL in contexts:
        forward_ad.exit_dual_level()  # type: ignore[no-untyped-call]
    for _ in range(MOST_LEFT):
        if HOOKS not in contexts or HOOKS not in open_contexts():
            break
        saved_tensors_hooks(lambda x: x, lambda x: x).__exit__()  # removes the innermost pair of hooks
    return contexts


def transform_is_open() -> bool:
    """Return whether a transform of torch.func is open: torch then rejects `requires_grad_`.

    Such a transform cannot be closed from outside.
    """
    try:
        torch.empty(0).requires_grad_()
    except RuntimeError:
        return True
    return False


def preload_lazy_imports() -> None:
    """Compute a derivative of each kind, so that torch performs its lazy imports now. Repeated calls are fast.

    A time-out, or a warning turned into an error, can interrupt an import and leave a module half initialized, so that
    everything that needs the module fails. Besides, the imports take a second or two, which must not count
    as time of the first case.
    """
    with warnings.catch_warnings(), torch.inference_mode(False):  # torch 2.6 makes no batched dual numbers in it
        warnings.simplefilter("ignore")  # torch warns about its own code
        point, tangents = torch.zeros(2), torch.ones(3, 2)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(point, tangents[0])  # type: ignore[no-untyped-call]
            (dual + 1).sin()  # a tensor and a number: imports parts of the compiler
        torch.func.vmap(lambda tangent: torch.func.jvp(torch.sin, (point,), (tangent,)))(tangents)  # decompositions
        torch.testing.assert_close(point, point + 0)  # imports torch.distributed
