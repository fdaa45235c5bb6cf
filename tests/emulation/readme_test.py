#!/usr/bin/env python3
"""The page quotes real files: each code block of README.md that follows a line `<!-- file: PATH -->` must be that file,
or, with `<!-- part of: PATH -->`, must stand in it as it is. The lines that a report (`<!-- report: BUG -->`) names must be
those that are marked as that planted bug's.

    readme_test.py PROJECT_FOLDER
"""
import pathlib
import re
import sys

REPORT = re.compile(r"<!-- report: (\w+) -->\n+```\w*\n(.*?)\n```", re.S)
QUOTE = re.compile(r"<!-- (file|part of): (\S+) -->\n+```\w*\n(.*?)\n```", re.S)


def main():
    root = pathlib.Path(sys.argv[1])
    page = (root / "tests/emulation/README.md").read_text(encoding="utf-8")
    quotes = QUOTE.findall(page)
    failures = []
    for kind, path, quoted in quotes:
        text = (root / path).read_text(encoding="utf-8")
        if (kind == "file" and quoted + "\n" != text) or (kind == "part of" and quoted not in text):
            failures.append(f"tests/emulation/README.md does not quote {path} as it is")
    reports = REPORT.findall(page)
    for bug, report in reports:
        places = re.findall(r"(\S+\.cu):(\d+)", report)
        for path, number in places:
            line = (root / path).read_text(encoding="utf-8").splitlines()[int(number) - 1]
            if not re.search(rf"// planted: .*\b{bug}\b", line):
                failures.append(f"tests/emulation/README.md: {path}:{number} is no line of the planted bug {bug}")
        if not places:
            failures.append(f"tests/emulation/README.md: the report of {bug} names no line")
    if not reports:
        failures.append("tests/emulation/README.md shows no report")
    if len(quotes) != len(re.findall(r"<!-- (?:file|part of):", page)) or len(quotes) < 4:
        failures.append(f"only {len(quotes)} quotations with their code were found")
    print("\n".join(failures) or f"{len(quotes)} quotations are as in their files")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
