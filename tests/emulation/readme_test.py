#!/usr/bin/env python3
"""The pages quote real files: each code block that follows a line `<!-- file: PATH -->` must be that file, or, with
`<!-- part of: PATH -->`, must stand in it as it is. The lines that a report (`<!-- report: BUG -->`) names must be those
that are marked as that planted bug's.

    readme_test.py PROJECT_FOLDER
"""
import pathlib
import re
import sys

REPORT = re.compile(r"<!-- report: (\w+) -->\n+```\w*\n(.*?)\n```", re.S)
QUOTE = re.compile(r"<!-- (file|part of): (\S+) -->\n+```\w*\n(.*?)\n```", re.S)


# How many quotations and reports each page has, at least: a changed mark must not make the test see none.
PAGES = {"tests/emulation/README.md": (4, 1), "tests/emulation/fakes/README.md": (1, 0)}


def check(root, path, least_quotes, least_reports):
    """The failures of one page, and how many quotations it has."""
    page = (root / path).read_text(encoding="utf-8")
    quotes = QUOTE.findall(page)
    failures = []
    for kind, file, quoted in quotes:
        text = (root / file).read_text(encoding="utf-8")
        if (kind == "file" and quoted + "\n" != text) or (kind == "part of" and quoted not in text):
            failures.append(f"{path} does not quote {file} as it is")
    reports = REPORT.findall(page)
    for bug, report in reports:
        places = re.findall(r"(\S+\.cu):(\d+)", report)
        for file, number in places:
            line = (root / file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
            if not re.search(rf"// planted: .*\b{bug}\b", line):
                failures.append(f"{path}: {file}:{number} is no line of the planted bug {bug}")
        if not places:
            failures.append(f"{path}: the report of {bug} names no line")
    if len(reports) < least_reports:
        failures.append(f"{path} shows no report")
    if len(quotes) != len(re.findall(r"<!-- (?:file|part of):", page)) or len(quotes) < least_quotes:
        failures.append(f"{path}: only {len(quotes)} quotations with their code were found")
    return failures, len(quotes)


def main():
    root = pathlib.Path(sys.argv[1])
    failures, quotes = [], 0
    for path, least in PAGES.items():
        of_page, count = check(root, path, *least)
        failures += of_page
        quotes += count
    print("\n".join(failures) or f"{quotes} quotations are as in their files")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
