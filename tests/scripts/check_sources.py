#!/usr/bin/env python3
"""Rules of the sources that no compiler checks: who may include whom, and what only one folder may do.

    check_sources.py [ROOT]

Prints one line per offence, `file:line: what`, and ends with 1 if there is one. The rules stand in ARCHITECTURE.md;
the tables below are their one place in code.
"""
import pathlib
import re
import sys

# Folder -> what its files may include of the project, as path prefixes.
MAY_INCLUDE = {
    "kernels": ("kernels/",),
    "topology": ("topology/", "kernels/base/"),
    "parallel": ("parallel/", "kernels/", "topology/"),
    "runtime": ("runtime/", "parallel/", "kernels/", "topology/"),
    "launch": ("launch/", "runtime/", "parallel/", "kernels/", "topology/"),
    "tests": ("tests/", "launch/", "runtime/", "parallel/", "kernels/", "topology/"),
}
# Third-party headers -> the path prefixes whose files may include them.
HEADER_OWNERS = (
    ("MPI", re.compile(r"(.*/)?mpi(-ext|io)?\.h$"), ("parallel/", "tests/")),
    ("CUDA, NCCL and NVML",
     re.compile(r"(.*/)?(cuda\w*|cu(blas|rand|sparse|fft|solver|pti)\w*|nccl\w*|nvml\w*|nvToolsExt\w*|driver_types|"
                r"device_launch_parameters|cooperative_groups\w*)\.h(pp)?$|^(cuda|cub|thrust|cutlass|nvtx3|"
                r"cooperative_groups)/"),
     ("kernels/cuda/", "parallel/cuda/", "topology/nvml/", "tests/")),
)
# What the code may say in some folders only. Strings are emptied and comments gone before the search.
CODE_OWNERS = (
    ("main", re.compile(r"\bint\s+main\s*\("), ("launch/", "tests/")),
    ("the environment", re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b"), ("launch/", "tests/")),
    ("standard output",
     re.compile(r"\bstd\s*::\s*w?cout\b|\b(?:printf|puts|putchar|vprintf)\s*\(|(?<!fflush\()\bstdout\b|\bSTDOUT_FILENO\b|"
                r"\b(?:fmt|std)\s*::\s*print(?:ln)?\s*\(\s*(?:\"|FMT_STRING|fmt::runtime|fmt::emphasis|fg\()"),
     ("launch/", "tests/")),
)
# What no kernel file may say: either the emulation of tests/emulation would not see it (the memory functions, which
# compilers expand to moves without hooks; host code that needs them goes to a .cpp), or only nvcc understands it.
KERNEL_FILES = re.compile(r"kernels/cuda/(?!(?:portable|ptx)\.cuh$).*\.cuh?$")
KERNEL_BANS = (
    ("accesses that no checker sees",
     re.compile(r"\bmem(?:cpy|set|move)\b|\b__builtin_mem\w+|\bstd\s*::\s*(?:ranges\s*::\s*)?(?:copy|fill)\w*")),
    ("a shared variable is declared with SHARDSCOPE_SHARED", re.compile(r"\b__shared__\b")),
    ("kernels start through launch()", re.compile(r"<<<")),
    ("PTX belongs to kernels/cuda/ptx.cuh", re.compile(r"\b(?:asm|__asm__|__asm)\b")),
)
SUFFIXES = {".hpp", ".h", ".cpp", ".cc", ".inl", ".cu", ".cuh"}

TOKEN = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)"
    r'|(?P<raw>\bu?8?[LUu]?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<number>\b[0-9](?:'?[\w.])*)"
    r"|(?P<character>'(?:\\.|[^'\\\n])+')",
    re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?P<open>[<"])(?P<name>[^>"\n]+)[>"]', re.M)


TEST_NAME = re.compile(r'\bTEST_CASE\(\s*"(?P<name>(?:[^"\\]|\\.)*)"')


def stripped(text, keep_strings):
    """The text without comments, with strings emptied unless kept; line numbers stay as they are."""
    def replace(match):
        token = match.group()
        if match["comment"]:
            return " " + "\n" * token.count("\n")
        if match["number"] or (keep_strings and not match["raw"]):
            return token
        return ("''" if match["character"] else '""') + "\n" * token.count("\n")
    return TOKEN.sub(replace, text)


def project_path(root, including, name):
    """The path within the project that an include means, or None for somebody else's header."""
    if (root / name).is_file() or name.split("/")[0] in MAY_INCLUDE:
        found = root / name
    elif (including.parent / name).is_file():
        found = including.parent / name
    else:
        return None
    found = found.resolve()
    return found.relative_to(root).as_posix() if found.is_relative_to(root) else None


def offences_of(root, path):
    relative = path.relative_to(root).as_posix()
    folder = relative.split("/")[0]
    text = path.read_text(encoding="utf-8")

    with_strings = stripped(text, keep_strings=True)
    for match in INCLUDE.finditer(with_strings):
        line = with_strings.count("\n", 0, match.start()) + 1
        name = match["name"].strip()
        target = project_path(root, path, name)
        if target is not None and not target.startswith(MAY_INCLUDE[folder]):
            yield relative, line, f"{folder}/ may not include {target} (it may: {', '.join(MAY_INCLUDE[folder])})"
        if target is None:
            for what, headers, owners in HEADER_OWNERS:
                if headers.match(name) and not relative.startswith(owners):
                    yield relative, line, f"{name}: headers of {what} belong to {', '.join(owners)}"

    code = stripped(text, keep_strings=False)
    for what, pattern, owners in CODE_OWNERS:
        if not relative.startswith(owners):
            for match in pattern.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                yield relative, line, f"{match.group().strip()}: {what} belongs to {', '.join(owners)}"
    if KERNEL_FILES.match(relative):
        for why, pattern in KERNEL_BANS:
            for match in pattern.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                yield relative, line, f"{match.group().strip()} in a kernel file: {why}"
    for match in TEST_NAME.finditer(with_strings):
        if ";" in match["name"]:
            line = with_strings.count("\n", 0, match.start()) + 1
            yield relative, line, "a semicolon in a test's name: ctest would look for two tests and run neither"
    if path.suffix in {".hpp", ".cuh"} and "#pragma once" not in code:
        yield relative, 1, "a header without #pragma once"


def sources(root):
    for folder in MAY_INCLUDE:
        yield from sorted(p for p in (root / folder).rglob("*") if p.suffix in SUFFIXES and p.is_file())


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    files = list(sources(root))
    if not files:
        print(f"check_sources: no sources under {root}")
        return 1
    offences = [offence for path in files for offence in offences_of(root, path)]
    for relative, line, what in offences:
        print(f"{relative}:{line}: {what}")
    print(f"check_sources: {len(files)} files, {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
