"""Builds the package: copies the library's JavaScript, built by `npm run build`, into the Python package."""

import json
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = json.loads((ROOT / "package.json").read_text())

# the JavaScript that the command line loads; fast-check draws the inputs of conformance runs, the packages of Hugging Face encode
# texts for language models and write their chat templates
PARTS = [
    ("dist", "**/*.js"),
    ("build", "reference.*"),
    ("node_modules/fast-check", "package.json"),
    ("node_modules/fast-check/lib", "**/*"),
    ("node_modules/fast-check", "LICENSE"),
    ("node_modules/pure-rand", "package.json"),
    ("node_modules/pure-rand/lib", "**/*"),
    ("node_modules/pure-rand", "LICENSE"),
    ("node_modules/@huggingface/jinja", "package.json"),
    ("node_modules/@huggingface/jinja", "dist/index.js"),
    ("node_modules/@huggingface/jinja", "LICENSE"),
    ("node_modules/@huggingface/tokenizers", "package.json"),
    ("node_modules/@huggingface/tokenizers", "dist/tokenizers.mjs"),
    ("node_modules/@huggingface/tokenizers", "LICENSE"),
]

UNUSED = (".map", ".cts", ".mts")


class BuildWithJavaScript(build_py):
    def run(self):
        super().run()
        target = Path(self.build_lib) / "lockstep" / "_js"
        if not (ROOT / "dist/src/cli/bin.js").exists():
            raise SystemExit(f"{ROOT}/dist is missing; run `npm ci && npm run build` there first")
        for name in ("package.json", "LICENSE"):
            copy(ROOT / name, target / name)
        for folder, pattern in PARTS:
            for file in sorted((ROOT / folder).glob(pattern)):
                if file.is_file() and file.suffix not in UNUSED and not file.name.endswith(".d.ts"):
                    copy(file, target / file.relative_to(ROOT))


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


setup(version=MANIFEST["version"], cmdclass={"build_py": BuildWithJavaScript})
