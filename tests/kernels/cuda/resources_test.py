#!/usr/bin/env python3
"""What each kernel takes of a GPU, as ptxas said when it was compiled, against the table beside this file.

    resources_test.py OBJECTS [--release VERSION] [--table FILE] [--update]

OBJECTS: object files joined by ':'; beside each stands what ptxas said (kernels/cuda/ptxas_log). No kernel may spill
registers or have a stack frame; none may take more registers, or another amount of static shared memory, than the table
says; and table and objects hold the same kernels, for each architecture that was compiled. Of another compiler than the
table's (--release), registers and shared memory are shown only. --update writes the table.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ARCHITECTURES = ("80", "90", "100", "120")
RELEASE = "13.0"  # of nvcc, when the table was written
TABLE = pathlib.Path(__file__).with_name("resources.txt")
HEAD = f"""# What the kernels of kernels/cuda take of a GPU. Written by resources_test.py --update from nvcc {RELEASE}; read by it.
# On {', '.join("sm_" + a for a in ARCHITECTURES)}: registers of a thread at most / bytes of static shared memory (-: not measured).
# A multiprocessor deals registers to threads by eights, so the limits are multiples of 8. Spills and stack: always 0.
"""
ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for 'sm_(?P<architecture>\d+)[a-z]?'")
FRAME = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
USED = re.compile(r"Used (?P<registers>\d+) registers")
SHARED = re.compile(r"\b(?P<bytes>\d+) bytes smem")


def short_name(demangled):
    """A kernel's name without result, namespaces of ours and parameters: `rms_norm<__half>`."""
    depth = 0
    name = demangled
    if name.endswith(")"):
        for at in range(len(name) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(name[at], 0)
            if depth == 0:
                name = name[:at]
                break
    name = re.sub(r"^void ", "", name)
    return name.replace("shardscope::cuda::", "").replace("(anonymous namespace)::", "")


def read_ptxas(text):
    """What ptxas -v said: {(mangled name, architecture): [registers, shared bytes, stack bytes, spilled bytes]}."""
    found = {}
    current = None
    for line in text.splitlines():
        if match := ENTRY.search(line):
            current = found.setdefault((match["name"], match["architecture"]), [0, 0, 0, 0])
        elif match := FRAME.search(line):  # of the kernel, or of a function that it calls
            if current is None:
                raise ValueError(f"a function of no kernel: {line.strip()}")
            current[2] = max(current[2], int(match["stack"]))
            current[3] = max(current[3], int(match["stores"]) + int(match["loads"]))
        elif match := USED.search(line):
            current[0] = max(current[0], int(match["registers"]))
            shared = SHARED.search(line)
            current[1] = int(shared["bytes"]) if shared else 0
    return found


def measure(objects):
    """{kernel: {architecture: [registers, shared, stack, spilled]}} of these object files."""
    found = {}
    for path in objects:
        log = pathlib.Path(str(path) + ".ptxas")
        entries = read_ptxas(log.read_text(encoding="utf-8")) if log.is_file() else {}
        if not entries:
            raise ValueError(f"{log}: ptxas said nothing about a kernel; was it compiled with -Xptxas -v through ptxas_log?")
        names = [name for name, _ in entries]
        demangled = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
        for (key, numbers), name in zip(entries.items(), demangled.stdout.splitlines()):
            of_kernel = found.setdefault(short_name(name), {})
            if key[1] in of_kernel:
                raise ValueError(f"two kernels are called {short_name(name)} (sm_{key[1]})")
            of_kernel[key[1]] = numbers
    return found


def read_table(path):
    """{kernel: {architecture: (registers at most, shared bytes)}}."""
    table = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        if line.strip() and not line.startswith("#"):
            *cells, name = line.split(maxsplit=len(ARCHITECTURES))
            table[name] = {a: tuple(int(number) for number in cell.split("/"))
                           for a, cell in zip(ARCHITECTURES, cells) if cell != "-"}
    return table


def offences(found, table, compare_amounts=True):
    architectures = sorted({a for of_kernel in found.values() for a in of_kernel}, key=int)
    if not architectures:
        yield "no kernel was compiled"
    for name in sorted(set(found) | set(table)):
        if name not in table:
            yield f"{name} is not in the table"
        for architecture in architectures:
            where = f"{name}, sm_{architecture}"
            if architecture not in found.get(name, {}):
                yield f"{where}: in the table, but not compiled"
                continue
            registers, shared, stack, spilled = found[name][architecture]
            if spilled:
                yield f"{where}: spills {spilled} bytes of registers"
            if stack:
                yield f"{where}: has a stack frame of {stack} bytes"
            if name not in table or not compare_amounts:
                continue
            if architecture not in table[name]:
                yield f"{where}: the table has nothing for this architecture"
                continue
            limit, shared_expected = table[name][architecture]
            if registers > limit:
                yield f"{where}: takes {registers} registers, the table allows {limit}"
            if shared != shared_expected:
                yield f"{where}: takes {shared} bytes of static shared memory, the table says {shared_expected}"


def write_table(path, found, table):
    lines = []
    for name in sorted(found):
        cells = dict(table.get(name, {}))
        cells.update({a: ((numbers[0] + 7) // 8 * 8, numbers[1]) for a, numbers in found[name].items()})
        columns = "".join(f"{'/'.join(map(str, cells[a])) if a in cells else '-':>9}" for a in ARCHITECTURES)
        lines.append(f"{columns}  {name}\n")
    path.write_text(HEAD + "".join(lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objects")
    parser.add_argument("--release", default=RELEASE)
    parser.add_argument("--table", type=pathlib.Path, default=TABLE)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    try:
        found = measure([pathlib.Path(path) for path in options.objects.split(":") if path])
    except ValueError as error:
        print(f"resources: {error}")
        return 1
    table = read_table(options.table)
    if options.update:
        write_table(options.table, found, table)
        table = read_table(options.table)
    print(f"{'registers':>9} {'limit':>5} {'shared':>6} {'spilled':>7}  kernel")
    for name, of_kernel in sorted(found.items()):
        for architecture, (registers, shared, _, spilled) in sorted(of_kernel.items(), key=lambda item: int(item[0])):
            limit = table.get(name, {}).get(architecture, ("-",))[0]
            print(f"{registers:>9} {limit:>5} {shared:>6} {spilled:>7}  {name}, sm_{architecture}")
    same_release = options.release == RELEASE or options.release.startswith(RELEASE + ".")
    if not same_release:
        print(f"resources: the table is of nvcc {RELEASE}, this one is {options.release}: amounts are not compared")
    wrong = list(offences(found, table, same_release))
    for what in wrong:
        print(f"resources: {what}")
    print(f"resources: {len(found)} kernels, {len(wrong)} offences")
    if wrong:
        print(f"what to do: mend the kernel; or, if it is as it should be, {sys.argv[0]} {options.objects} --update")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
