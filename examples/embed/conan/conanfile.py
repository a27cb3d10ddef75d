import os

from conan import ConanFile
from conan.tools.files import copy, get


class AttnConan(ConanFile):
    name = "attn"
    description = "Attention for C in one header"
    license = "MIT OR Unlicense"
    topics = ("attention", "softmax", "header-only", "single-header")
    package_type = "header-library"
    no_copy_source = True

    def package_id(self):
        self.info.clear()

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def package(self):
        package = os.path.join(self.source_folder, "examples", "embed", "package")
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "attn*.*h", self.source_folder, os.path.join(self.package_folder, "include"), keep_path=False,
             excludes=("tests/*", "bench/*", "examples/*"))
        copy(self, "*.cmake", package, os.path.join(self.package_folder, "share", "cmake", "attn"))

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        # the package's own file makes the targets attn::attn and attn::header
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "attn")]
        self.cpp_info.set_property("cmake_find_mode", "none")
