"""Lists the public names of TransformerEngine's PyTorch package: conformance/vectors/te-names.json.

    python -I -m pip download --no-deps transformer_engine==2.20.2
    python -I scripts/witness/te_names.py transformer_engine-2.20.2-py3-none-any.whl

The sources in the wheel are parsed, not run, so neither torch nor a GPU is needed. A name is public if it does not begin with an
underscore, and

* the package or one of its subpackages imports it from another of its own modules in `__init__.py`, or
* `__all__` of one of its modules has it, or
* it is defined in a module that users are told to import from (`DEFINED`), or it is a public method of a class in `METHODS`.

`from .x import *` imports `__all__` of that module, or else all its public names. Names of `transformer_engine.pytorch.ops` repeat
those of modules, so they are written `ops.NAME`; methods are written `CLASS.NAME`.
"""

import ast
import json
import sys
import zipfile
from pathlib import Path

VERSION = "2.20.2"
PACKAGE = "transformer_engine/pytorch"
OUT = Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "te-names.json"
# modules without __all__ whose definitions the documentation of TransformerEngine shows
DEFINED = {
    "transformer_engine/common/recipe/__init__.py",
    f"{PACKAGE}/constants.py",
    f"{PACKAGE}/router.py",
}
METHODS = {f"{PACKAGE}/quantization.py": ["FP8GlobalStateManager"], f"{PACKAGE}/quantized_tensor.py": ["Quantizer", "QuantizedTensor"]}
# subpackages with internal contents: registrations for torch.compile, Triton kernels, and extensions for other software
INTERNAL = ("dynamo/", "triton/", "cpp_extensions/")


def is_public(name):
    return not name.startswith("_")


def declared(tree):
    """The names of `__all__`, or None if the module has none."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return ast.literal_eval(node.value)
    return None


def defined(tree):
    """The classes and functions that a module defines."""
    return [node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]


class Sources:
    """The Python modules of a wheel, by path."""

    def __init__(self, wheel):
        self.trees = {
            path: ast.parse(wheel.read(path))
            for path in wheel.namelist()
            if path.endswith(".py") and path.startswith((PACKAGE, "transformer_engine/common/recipe/"))
        }

    def module(self, importer, node):
        """The path of the module that `from X import` names in the module `importer`, or None if it is not of the package."""
        if node.level:
            folder = importer.split("/")[: -node.level]
            base = "/".join(folder + (node.module.split(".") if node.module else []))
        else:
            base = (node.module or "").replace(".", "/")
        return next((path for path in (f"{base}.py", f"{base}/__init__.py") if path in self.trees), None)

    def imported(self, path):
        """The public names that `__init__.py` imports from modules of the package."""
        for node in self.trees[path].body:
            source = self.module(path, node) if isinstance(node, ast.ImportFrom) else None
            if source is None and not (isinstance(node, ast.ImportFrom) and node.module == "transformer_engine_torch"):
                continue
            for alias in node.names:
                if alias.name == "*":
                    yield from self.all_of(source)
                elif not self.is_module(source, alias.name):
                    yield alias.asname or alias.name

    def is_module(self, package, name):
        """Whether a package has a module of this name."""
        folder = (package or "").removesuffix("/__init__.py")
        return folder != package and any(f"{folder}/{path}" in self.trees for path in (f"{name}.py", f"{name}/__init__.py"))

    def all_of(self, path):
        """The names that `import *` takes from a module."""
        tree = self.trees[path]
        names = declared(tree)
        if names is not None:
            return names
        return list(self.imported(path)) if path.endswith("/__init__.py") else defined(tree)

    def methods(self, path, class_name):
        tree = next(node for node in self.trees[path].body if isinstance(node, ast.ClassDef) and node.name == class_name)
        return [f"{class_name}.{name}" for name in defined(tree)]

    def public(self, path):
        """The public names of one module, as users would import them."""
        tree = self.trees[path]
        names = list(declared(tree) or [])
        if path.endswith("/__init__.py"):
            names += self.imported(path)
        if path in DEFINED:
            names += defined(tree)
        prefix = "ops." if path.startswith(f"{PACKAGE}/ops/") else ""
        names = [prefix + name for name in names if is_public(name)]
        for class_name in METHODS.get(path, []):
            names += [name for name in self.methods(path, class_name) if is_public(name.split(".")[1])]
        return names


def main(path):
    with zipfile.ZipFile(path) as wheel:
        metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        version = next(line for line in wheel.read(metadata).decode().splitlines() if line.startswith("Version: "))[9:]
        if version != VERSION:
            sys.exit(f"te_names: the wheel is version {version}; this list is of {VERSION}")
        sources = Sources(wheel)
    names = set()
    for module in sources.trees:
        inner = module.removeprefix(f"{PACKAGE}/")
        hidden = any(part.startswith("_") and part != "__init__.py" for part in module.split("/"))
        if not hidden and not inner.startswith(INTERNAL):
            names.update(sources.public(module))
    listed = {"package": "transformer_engine", "version": version, "names": sorted(names)}
    OUT.write_text(json.dumps(listed, indent=1) + "\n")
    print(f"{len(names)} names")


main(sys.argv[1])
