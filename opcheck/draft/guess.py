"""Guesses samples for the parameters of an operator, and arguments for the constructor of a class of modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, product, repeat

from torch.nn import Module

from opcheck.draft.data import INDICES, Data, SampleData, Shape, is_tensor, mapped, parts, with_keyword
from opcheck.draft.parameters import IDENTITY, TENSOR, Parameter, parameters_of_constructor, path_of

COMMON: tuple[Shape, ...] = (
    (2, 3), (3,), (3, 3), (2, 3, 3), (2, 3, 4), (1, 2, 4, 4), (), (4,), (2, 4), (4, 4), (1, 1, 6, 6), (1, 2, 2, 2, 2),
    (1, 1, 16, 16),
)  # fmt: skip
"""Shapes to try. The last is an image larger than the windows of image metrics, which often have 7 to 11 pixels."""
TOGETHER: dict[int, tuple[tuple[Shape, ...], ...]] = {
    2: (((2, 3), (3,)), ((2, 3), (3, 2)), ((2, 3), (2,)), ((2, 3, 3), (2, 3)), ((1, 2, 4, 4), (3, 2, 2, 2))),
    3: (((2, 3), (4, 3), (4,)), ((1, 2, 5), (3, 2, 2), (3,)), ((1, 2, 4, 4), (3, 2, 2, 2), (3,)), ((2, 3), (3,), (3,))),
}
"""Shapes that fit together, by number of tensors: broadcasting, matrix products, linear maps, convolutions."""

UNIT_INTERVAL: SampleData = {"low": 0.1, "high": 0.9}
DOMAINS: tuple[SampleData, ...] = ({}, UNIT_INTERVAL, {"low": 1.1, "high": 2.0})
"""Domains of the values: the default one, inside the unit interval, above 1."""
NEAR_ZERO: SampleData = {"low": -0.5, "high": 0.5}
"""A domain in which functions such as sparsemax take another branch."""

MOST_CHOICES = 48
MOST_SHAPES = 60
MOST_CONSTRUCTIONS = 24

OF_WEIGHTS: Shape = (3,)
"""The shape of each tensor that is an argument of a constructor, such as weights of classes."""


def first_samples(
    parameters: Sequence[Parameter], crashed: bool = False, has_tensors: bool = False
) -> Iterator[SampleData]:
    """Yield samples with values for the required parameters, the likeliest first. Each has at least one tensor.

    has_tensors: whether the operator is a module, whose parameters are tensors, so that a sample needs none.
    crashed: whether a call has ended its process. Then values inside the unit interval come first: an operator that
    uses a column of a tensor as indices would read out of bounds for other values.
    """
    required = [parameter for parameter in parameters if parameter.required]
    choices = list(islice(_choices([parameter.options for parameter in required]), MOST_CHOICES))
    for domain in sorted(DOMAINS, key=lambda domain: crashed and domain is not UNIT_INTERVAL):
        for choice in choices:
            pairs = zip(choice, required, strict=True)
            known = [parameter.shapes for value, parameter in pairs for part in parts(value) if is_tensor(part)]
            for shapes in _shapes(known) if known else [()] * has_tensors:
                yield sample_of(required, _shaped([*choice], iter(shapes), domain))


def _choices(options: Sequence[Sequence[Data]]) -> Iterator[tuple[Data, ...]]:
    """Yield all choices of one option for each parameter, ordered by the sum of the indices of the options."""

    def of_rank(rank: int, left: Sequence[Sequence[Data]]) -> Iterator[tuple[Data, ...]]:
        if not left:
            yield from [()] * (rank == 0)
            return
        for index, value in enumerate(left[0][: rank + 1]):
            yield from ((value, *others) for others in of_rank(rank - index, left[1:]))

    for rank in range(1 + sum(len(own) - 1 for own in options)):
        yield from of_rank(rank, options)


def _shapes(known: Sequence[tuple[Shape, ...]]) -> Iterator[tuple[Shape, ...]]:
    """Yield shapes for several tensors. known: the documented shapes of each tensor, which are tried first."""
    count = len(known)
    hinted = islice(product(*(own or COMMON[:4] for own in known)), MOST_SHAPES // 2) if any(known) else ()
    equal = ((shape,) * count for shape in COMMON)
    others = product(COMMON[:5], repeat=count) if count <= 3 else ()
    yield from dict.fromkeys(islice(chain(hinted, equal, TOGETHER.get(count, ()), others), MOST_SHAPES))


def _shaped(value: Data, shapes: Iterator[Shape], domain: SampleData) -> Data:
    """Return a value with each placeholder for a tensor replaced by a recipe with the next of the shapes."""
    kinds = {"float": domain, "index": INDICES}

    def recipe(part: Data) -> Data:
        return {"shape": list(next(shapes)), **kinds[part["tensor"]]} if is_tensor(part) else part

    return mapped(recipe, value)


def sample_of(required: Sequence[Parameter], values: Sequence[Data]) -> SampleData:
    """Return the sample that passes values to parameters, by position where possible."""
    pairs = list(zip(required, values, strict=True))
    kwargs = {parameter.name: value for parameter, value in pairs if parameter.keyword}
    sample: SampleData = {"args": [value for parameter, value in pairs if not parameter.keyword]}
    return {**sample, "kwargs": kwargs} if kwargs else sample


def further_samples(main: SampleData, parameters: Sequence[Parameter]) -> Iterator[list[SampleData]]:
    """Yield groups of samples that differ from a working sample in one respect. One sample of each group is enough.

    Other sizes, ranks and layouts are left to derived samples.
    """
    args = main["args"]
    tensors = [arg["shape"] for arg in args if isinstance(arg, dict) and "shape" in arg]
    if tensors:
        yield [{**main, "args": within(NEAR_ZERO, args)}]
    shapes = [*tensors[:1], *(shape[-1:] for shape in tensors[:1]), *(shape[:1] for shape in tensors[1:2] if shape)]
    for parameter in parameters:
        if not parameter.required and parameter.name not in main.get("kwargs", {}):
            options = [
                _shaped(value, iter([tuple(shape)]), {})
                for value in parameter.options for shape in (shapes if value == TENSOR else [()])
            ]  # fmt: skip
            yield [with_keyword(main, parameter.name, value) for value in options]


def within(domain: SampleData, data: Data) -> Data:
    """Return TOML data with the values of each tensor of which only the shape is given in a domain."""
    return mapped(lambda part: {**part, **domain} if is_tensor(part) and part.keys() == {"shape"} else part, data)


def constructions(make: type[Module]) -> Iterator[SampleData]:
    """Yield arguments for a constructor, as in `module = { args = [3, 2] }`, the likeliest first."""
    required = [one for one in parameters_of_constructor(make) if one.required]
    siblings = _siblings(make)
    inner = [siblings[:1], *siblings] if siblings else []
    # A parameter that is known to take numbers or strings takes no module.
    takes_any = [
        (not one.options and not one.is_plain) or TENSOR in one.options or IDENTITY in one.options for one in required
    ]
    options = [(*one.options, *inner * takes) for one, takes in zip(required, takes_any, strict=True)]
    alike = islice(zip(*options, strict=False), MOST_CONSTRUCTIONS // 2)  # as for two equal modules
    for choice in islice(chain(alike, product(*options)), MOST_CONSTRUCTIONS):
        arguments = sample_of(required, _shaped([*choice], repeat(OF_WEIGHTS), {}))
        yield {key: values for key, values in arguments.items() if values}


def _siblings(make: type[Module]) -> list[Data]:
    """Return up to two classes with the same base, and no required arguments, for a module that contains modules."""
    *_, base = (one for one in make.__mro__ if issubclass(one, Module) and one is not Module)
    if base is make:
        return []
    others = [one for one in base.__subclasses__() if one is not make and one.forward is not base.forward]
    plain = [one for one in others if not any(own.required for own in parameters_of_constructor(one))]
    return [{"call": path_of(one)} for one in plain[:2]]
