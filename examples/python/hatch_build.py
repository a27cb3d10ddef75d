"""What pyproject.toml cannot say: where attn.h is, and what becomes of it. A wheel has a package, since a single file
can carry neither a header nor hints: attn.py as its __init__.py, the header and that of the web page of a heatmap, and
a library that is built from both.

The library is built when the wheel is, not at the first import. So a compiler that is missing is missed while something
is being installed, and what runs later needs no compiler, no second of patience and no folder that it may write to.
Where the library of a wheel does not load, say because the wheel was made on a system with a newer C library, attn.py
builds one from the headers at import."""
import os
import subprocess
import sys
import sysconfig
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        header = self.found("attn.h", "..", "..")
        page = self.found("attn_heatmap_html.h", "..", "web")
        if self.target_name == "sdist":
            build_data["force_include"].update({header: "attn.h", page: "attn_heatmap_html.h"})
        elif version != "editable":                             # that uses attn.py where it lies
            build_data["force_include"].update({
                os.path.join(self.root, "attn.py"): "attn/__init__.py",
                os.path.join(self.root, "py.typed"): "attn/py.typed",
                header: "attn/attn.h",
                page: "attn/attn_heatmap_html.h",
                self.library(header): "attn/libattn.so"})
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def found(self, name, *folders):
        """Where it is in an sdist, or in the repository."""
        places = [os.path.join(self.root, name), os.path.join(self.root, *folders, name)]
        path = next(filter(os.path.isfile, places), None)
        if path is None:
            sys.exit(f"{name} is neither beside pyproject.toml nor in {'/'.join(folders)}: build in the repository, or "
                     "from an sdist. A pip older than 21.3 builds in a copy of the folder, which lacks it")
        return path

    def library(self, header):
        """attn.py builds it as it does at import, and checks it."""
        self.folder = tempfile.TemporaryDirectory()
        environment = dict(os.environ, ATTN_HEADER=header, ATTN_LIBRARY="",
                           ATTN_CACHE=os.environ.get("ATTN_CACHE") or self.folder.name)
        done = subprocess.run([sys.executable, "-c", "import attn; print(attn.lib._name)"], cwd=self.root,
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.stderr[done.stderr.find("ImportError"):])
        return done.stdout.strip()

    def finalize(self, version, build_data, artifact_path):
        if hasattr(self, "folder"):
            self.folder.cleanup()
