"""What the text of a dotted path tells: refusals that need neither torch nor the project."""

from __future__ import annotations

import pytest

from opcheck.spec.allow_list import not_importable, refused


@pytest.mark.parametrize(
    "path",
    [
        "torch.sin", "torch:sin", "torch.nn.functional.relu", "torch.Tensor.sin_", "torch.Tensor.__add__",
        "torch.Tensor.__rsub__", "torch._foreach_add", "torch.ops.aten.sin", "torch.ops.aten.sin.default",
        "torch.ops.mylib._kernel", "torch.ops._C.silu", "torch.utils.checkpoint.checkpoint", "mylib.op",
        "mylib.sub:Class.apply", "mylib._C.op", "torch.strided", "torch.nn.Linear", "torch.distributions.Normal",
        "torch.distributions.Normal.log_prob",
    ],
)  # fmt: skip
def test_nothing_speaks_against_what_the_project_allows(path: str) -> None:
    assert refused(path, ("torch", "mylib", "mylib._C", "torch.ops._C", "torch.utils.checkpoint")) is None


@pytest.mark.parametrize(
    ("path", "what", "expected", "nearest"),
    [
        ("os.system", "is outside the allowed modules", "a path inside torch, mylib (modules of [tool.opcheck])", ""),
        ("other.op", "is outside the allowed modules", '; to allow it, write modules = [..., "other"] there', ""),
        ("mylob.op", "is outside the allowed modules", "a path inside torch, mylib", "mylib"),
        (
            "torch.nn.functoinal.relu",
            "is not in a part of torch that specs may name",
            "a name in torch",
            "functional.relu",
        ),
        ("torch.os.system", "is not in a part of torch that specs may name", "torch.Tensor, torch.nn.functional", ""),
        ("torch.sin.out", "is not in a part of torch that specs may name", "", ""),
        ("torch._C.load", '"_C" is private', "public names", ""),
        ("torch._VF", '"_VF" is private', "public names", ""),
        ("torch.Tensor.__class__", '"__class__" is private', "public names", ""),
        ("torch.Tensor.__reduce__", '"__reduce__" is private', "public names", ""),
        ("mylib.op.__globals__.get", '"__globals__" is private', "public names", ""),
        ("mylib._op", '"_op" is private', "public names", ""),
        ("mylib._C.op", '"_C" is private', '"mylib._C" among the modules of [tool.opcheck]', ""),
        ("torch.ops", "is a module", "", ""),
        ("torch.ops.load_library", "is a module", "", ""),
        ("torch.ops.aten._softmax", "is not a public operator", "torch.ops.<namespace>.<operator>[.<overload>]", ""),
        ("torch.ops.aten.sin.default.op", "is not a public operator", "", ""),
        ("torch.ops.inductor.op", 'the operators of "inductor"', '"torch.ops.inductor" among the modules', ""),
        ("torch.ops.mylib.op.__call__", "is not a public operator", "", ""),
        ("torch.distributions.Normal.sample", "is not in a part of torch that specs may name", "", ""),
        ("torch.nn.Linear.rsample", "is not in a part of torch that specs may name", "", ""),
        ("torch.linalg", "is a module", "", ""),
        ("torch.Tensor", "is a class", "", ""),
    ],
)
def test_a_refusal_says_what_was_expected(path: str, what: str, expected: str, nearest: str) -> None:
    words = refused(path, ("torch", "mylib"))
    assert words is not None
    assert words[0].startswith(f'"{path}"')
    assert what in words[0]
    assert expected in words[1]
    assert words[2].endswith(nearest) if nearest else words[2] == ""


def test_some_private_operators_may_be_named_and_all_where_the_project_opens_the_namespace() -> None:
    for path in ("torch.ops.aten._safe_softmax", "torch.ops.aten._safe_softmax.default", "torch._foreach_add"):
        assert refused(path, ("torch",)) is None
    for path in ("torch.ops.aten._softmax", "torch.ops.aten._softmax.default"):
        assert refused(path, ("torch",)) is not None
        assert refused(path, ("torch", "torch.ops.aten")) is None
    assert refused("torch.ops.aten.__class__", ("torch", "torch.ops.aten")) is not None
    assert refused("torch.ops.prims._softmax", ("torch", "torch.ops.aten")) is not None


def test_a_library_is_closed_where_the_project_does_not_allow_it() -> None:
    for path in ("torch.sin", "numpy.sin", "torch.ops.aten.sin"):
        assert "outside the allowed modules" in str(refused(path, ("mylib",)))


def test_a_path_is_looked_at_in_the_innermost_module_that_is_allowed() -> None:
    assert refused("mylib._a._b.f", ("mylib", "mylib._a._b")) is None
    assert refused("mylib._a._c.f", ("mylib", "mylib._a._b")) is not None


@pytest.mark.parametrize("module", ["mylib", "mylib.ops", "mylib._C", "heldops"])
def test_modules_of_the_project_may_be_imported(module: str) -> None:
    assert not_importable(module, ("torch", "mylib", "heldops")) is None


@pytest.mark.parametrize(
    ("module", "expected", "nearest"),
    [
        ("os", "a module inside mylib (modules of [tool.opcheck])", ""),
        ("torch.utils.cpp_extension", "a module inside mylib", ""),
        ("numpy", "a module inside mylib", ""),
        ("mylib2", "a module inside mylib", "mylib"),
        ("mylib.__main__", "a module inside mylib", ""),
    ],
)
def test_others_may_not(module: str, expected: str, nearest: str) -> None:
    words = not_importable(module, ("torch", "numpy", "mylib"))
    assert words is not None
    assert words[0] == f'"{module}" is outside the modules of the project'
    assert words[1].startswith(expected)
    assert words[2] == nearest


def test_a_project_without_modules_is_told_how_to_allow_one() -> None:
    words = not_importable("mylib.ops", ("torch",))
    assert words is not None
    assert words[1] == 'modules = [..., "mylib"] under [tool.opcheck]'
