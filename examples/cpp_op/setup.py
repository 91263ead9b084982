"""Builds the extension: `pip install --no-build-isolation .`, or `python setup.py build_ext --inplace` to stay here."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    packages=["seqops"],
    ext_modules=[CppExtension("seqops._C", ["seqops/ops.cpp"])],
    cmdclass={"build_ext": BuildExtension},
)
