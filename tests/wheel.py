"""wheel.py LIBRARY PLATFORM FOLDER - a wheel of examples/python with this library, for this platform; prints its name.
What hatch_build.py puts into a wheel, from a library that another compiler made."""
import base64
import hashlib
import os
import re
import sys
import tomllib
import zipfile

library, platform, folder = sys.argv[1:]
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read(*names):
    with open(os.path.join(here, *names), "rb") as file:
        return file.read()


project = tomllib.loads(read("examples", "python", "pyproject.toml").decode())["project"]
header = read("attn.h")
version = re.search(rb" v([0-9.]+) ", header.split(b"\n", 1)[0]).group(1).decode()
name = "%s-%s" % (project["name"].replace("-", "_"), version)
tag = "py3-none-" + platform
metadata = ["Metadata-Version: 2.4", "Name: " + project["name"], "Version: " + version,
            "Summary: " + project["description"], "License-Expression: " + project["license"],
            "Requires-Python: " + project["requires-python"]]
metadata += ["Requires-Dist: " + need for need in project["dependencies"]]
for extra, needs in project["optional-dependencies"].items():
    metadata += ["Provides-Extra: " + extra] + ["Requires-Dist: %s; extra == '%s'" % (need, extra) for need in needs]
files = {"attn/__init__.py": read("examples", "python", "attn.py"), "attn/py.typed": b"", "attn/attn.h": header,
         "attn/attn_heatmap_html.h": read("examples", "web", "attn_heatmap_html.h"),
         "attn/libattn.so": open(library, "rb").read(),
         name + ".dist-info/METADATA": "\n".join(metadata + [""]).encode(),
         name + ".dist-info/WHEEL": ("Wheel-Version: 1.0\nGenerator: attn.h\nRoot-Is-Purelib: false\nTag: %s\n" %
                                     tag).encode()}
record = name + ".dist-info/RECORD"
lines = ["%s,sha256=%s,%d" % (path, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(),
                              len(data)) for path, data in files.items()]
files[record] = ("\n".join(lines) + "\n%s,,\n" % record).encode()
wheel = os.path.join(folder, "%s-%s.whl" % (name, tag))
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
    for path, data in files.items():
        archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
print(wheel)
