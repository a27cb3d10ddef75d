#!/usr/bin/env python3
"""Writes what bindings need to know of attn.h, read from the header itself: version, structures, enums, functions.

    python3 examples/bindings.py            rewrites that part of examples/python/attn.py, and examples/rust/attn.rs
    python3 examples/bindings.py --check    says where they differ from what it would write, and exits with 1

Run it after every change of the public part of attn.h. The C compiler (CC, or cc) expands the header's macros first."""
import os
import re
import subprocess
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(HERE, os.pardir, "attn.h")
PYTHON = os.path.join(HERE, "python", "attn.py")
RUST = os.path.join(HERE, "rust", "attn.rs")
BEGIN, END = "# ---- written by ../bindings.py from attn.h\n", "# ---- up to here\n"

NUMBERS = {  # C: ctypes, Rust
    "int32_t": ("c_int32", "i32"), "uint32_t": ("c_uint32", "u32"), "int64_t": ("c_int64", "i64"),
    "uint64_t": ("c_uint64", "u64"), "uint8_t": ("c_uint8", "u8"), "size_t": ("c_size_t", "usize"),
    "int": ("c_int", "c_int"), "float": ("c_float", "f32"), "double": ("c_double", "f64"),
    "char": ("c_char", "c_char"), "void": (None, "c_void"),
}


class Declared:
    """A field or a parameter, "const float *const x[4]", or a pointer to a function: its type in both languages."""

    def __init__(self, text, shared=""):
        function = re.fullmatch(r"(.*)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)", text.strip())
        if function:
            self.head, self.stars, self.name, self.count = "function", "*", function.group(2), None
            self.base = self.head
            self.result, self.parameters = Declared(function.group(1) + " result"), parameters(function.group(3))
            return
        head, stars, self.name, count = re.fullmatch(
            r"((?:const\s+)?\w+)?\s*((?:\*|\bconst\b|\s)*)\b(\w+)\s*(?:\[(.*)\])?", text.strip()).groups()
        self.head = head or shared
        self.base = self.head.replace("const", "").strip()
        self.stars = "".join(stars.replace("const", "").split())
        self.count = eval(count) if count else None

    def python(self, enums):
        if self.stars:
            kind = "c_char_p" if (self.head, self.stars) == ("const char", "*") else "c_void_p"
        elif self.base in enums:
            kind = "c_int"
        else:
            kind = NUMBERS[self.base][0] if self.base in NUMBERS else self.base
        return f"{kind} * {self.count}" if self.count else str(kind)

    def identifier(self):
        return "r#type" if self.name == "type" else self.name

    def rust(self):
        if self.base == "function":
            inside = ", ".join(p.rust() for p in self.parameters)
            result = "" if (self.result.base, self.result.stars) == ("void", "") else " -> " + self.result.rust()
            return f'Option<unsafe extern "C" fn({inside}){result}>'
        kind = NUMBERS[self.base][1] if self.base in NUMBERS else self.base
        for star in self.stars:
            kind = ("*const " if self.head.startswith("const") else "*mut ") + kind
        return f"[{kind}; {self.count}]" if self.count else kind


def parameters(text):
    return [] if text.strip() == "void" else [Declared(p) for p in text.split(",")]


def fields(body):
    found = []
    for line in filter(None, (part.strip() for part in body.split(";"))):
        names = [line] if "(" in line else line.split(",")
        first = Declared(names[0])
        found += [first] + [Declared(name, first.head) for name in names[1:]]
    return found


def read(header):
    """The public part of the header: structures {name: fields}, enums {name: {constant: number}}, types of callbacks
    {name: function}, functions {name: (result, parameters)}."""
    compiler = os.environ.get("CC", "cc").split()
    text = subprocess.run(compiler + ["-E", "-P", header], check=True, stdout=subprocess.PIPE, text=True).stdout
    text = re.sub(r"\s+", " ", text)
    structures = {name: fields(body) for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (attn_\w+);", text)}
    enums = {}
    for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (attn_\w+);", text):
        numbers, following = enums.setdefault(name, {}), 0
        for item in filter(None, (part.strip() for part in body.split(","))):
            key, _, value = (part.strip() for part in item.partition("="))
            numbers[key] = eval(value) if value else following
            following = numbers[key] + 1
    callbacks = {name: Declared(f"{result} (*{name})({inside})") for result, name, inside in
                 re.findall(r"typedef (\w+) \(\*(attn_\w+)\)\((.*?)\);", text)}
    functions = {}
    for result, name, inside in re.findall(r"extern ([^;()]*?)\b(attn_\w+) ?\(([^()]*)\);", text):
        functions[name] = Declared(result + " result"), parameters(inside)
    return structures, enums, callbacks, functions


def version():
    with open(HEADER) as file:
        return re.search(r"- v([0-9.]+) -", file.readline()).group(1)


def wrapped(first, items, last):
    """Lines of at most 120 columns, none of which ends within an item."""
    whole = [item.replace(" ", "\0") for item in items]
    indent = " " * (len(first) - len(first.lstrip()) + 4)
    text = first.replace(" ", "\0") + ", ".join(whole) + last.replace(" ", "\0")
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False).replace("\0", " ") + "\n"


def short(names):
    """Names without what they begin with together, and without their number: ATTN_SCORE_DOT is dot."""
    prefix = os.path.commonprefix(list(names)).rpartition("_")[0]
    return {name[len(prefix) + 1:].lower(): number for name, number in names.items() if not name.endswith("_COUNT")}


SPECIAL = {  # options that attn.py takes in a form of its own
    "sigma": "Numbers", "window": "tuple[int | None, int | None]", "dropout_origin": "Sequence[int]"}
NO_OPTION = {"struct_bytes", "q", "k", "v", "scale_set", "reserved", "reserved2", "workspace_bytes"}


def hint(field, enums):
    """What Python gives for a field of attn_desc, None where it is no option."""
    if field.name in NO_OPTION or field.stars or field.base in ("attn_out", "attn_allocator", "attn_parallel"):
        return None
    if field.name in SPECIAL:
        return SPECIAL[field.name]
    if "attn_" + field.name in enums:
        return "Literal[" + ", ".join(f'"{word}"' for word in short(enums["attn_" + field.name])) + "]"
    return {"attn_view": "Numbers", "int32_t": "bool", "float": "float"}.get(field.base, "int")


def options(fields, enums):
    """The options of a call, as a type checker sees them."""
    hints = {f.name: hint(f, enums) for f in fields}
    hints["threads"] = "int"
    text = "class OptionsButScale(TypedDict, total=False):\n"
    for name, kind in hints.items():
        if kind and name != "scale":
            text += wrapped(f"    {name}: ", kind.split(", "), " | None")
    text += f"\n\nclass Options(OptionsButScale, total=False):\n    scale: {hints['scale']} | None\n"
    text += "\n\nclass OptionsAndResults(Options, total=False):\n"
    for f in fields:
        if f.base == "attn_out" and f.name != "out":
            text += f"    {f.name}: bool | Array | None\n"
    return text + "\n\n"


def python(structures, enums, _, functions):
    text = f'__version__ = "{version()}"\n\n\n'
    for name, declared in structures.items():
        text += f"class {name}(Structure):\n"
        text += wrapped("    _fields_ = [", [f'("{f.name}", {f.python(enums)})' for f in declared], "]") + "\n\n"
    text += options(structures["attn_desc"], enums) + "ENUMS = {\n"
    for name, numbers in enums.items():
        text += wrapped(f'    "{name}": {{', [f'"{key}": {number}' for key, number in short(numbers).items()], "},")
    text += "}\nFUNCTIONS = {  # result, parameters\n"
    for name, (result, inside) in functions.items():
        text += wrapped(f'    "{name}": ({result.python(enums)}, [', [p.python(enums) for p in inside], "]),")
    return text + "}\n"


def rust(structures, enums, callbacks, functions):
    text = ("// Written by ../bindings.py from attn.h: structures, enums and functions under their names in C.\n"
            "#![allow(dead_code, non_camel_case_types)]\n"
            "use std::mem::zeroed;\n"
            "use std::os::raw::{c_char, c_int, c_void};\n\n")
    for name, numbers in enums.items():
        text += f"pub type {name} = c_int;\n"
        text += "".join(f"pub const {key}: {name} = {number};\n" for key, number in numbers.items()) + "\n"
    for name, declared in callbacks.items():
        text += f"pub type {name} = {declared.rust()};\n\n"
    for name, declared in structures.items():
        text += f"#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {name} {{\n"
        text += "".join(f"    pub {f.identifier()}: {f.rust()},\n" for f in declared) + "}\n\n"
        text += (f"impl Default for {name} {{\n    fn default() -> Self {{\n"
                 "        unsafe { zeroed() }\n    }\n}\n\n")
    text += 'extern "C" {\n'
    for name, (result, inside) in functions.items():
        gives = "" if (result.base, result.stars) == ("void", "") else " -> " + result.rust()
        text += wrapped(f"    pub fn {name}(", [f"{p.identifier()}: {p.rust()}" for p in inside], f"){gives};")
    return text + "}\n"


def replaced(text, part):
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:before] + part + text[after:]


def main():
    declarations = read(HEADER)
    stale = 0
    for path, write in ((PYTHON, lambda old: replaced(old, python(*declarations))),
                        (RUST, lambda old: rust(*declarations))):
        with open(path) as file:
            old = file.read()
        new = write(old)
        if new == old:
            continue
        stale = 1
        if "--check" in sys.argv:
            print(f"{os.path.relpath(path)} is not what attn.h says: run python3 examples/bindings.py")
        else:
            with open(path, "w") as file:
                file.write(new)
    return stale and "--check" in sys.argv


if __name__ == "__main__":
    sys.exit(main())
