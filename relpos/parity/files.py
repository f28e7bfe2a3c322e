"""A report as JSON and as JUnit XML, written whole or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from relpos.parity.report import Report
from relpos.parity.verdict import Verdict
from relpos.weights.files import write_whole as write_bytes

__all__ = ["to_json", "to_junit", "write_whole"]


def to_json(report: Report) -> str:
    """The report as JSON; numbers that JSON does not have are the strings "inf", "-inf", "nan"."""
    return json.dumps(_finite(report.to_dict()), indent=1, allow_nan=False) + "\n"


def to_junit(report: Report) -> str:
    """The report as JUnit XML: a test case per check; an inconclusive one is an error."""
    root = ElementTree.Element(
        "testsuites",
        tests=str(len(report.checks)),
        failures=str(len(report.of(Verdict.FAIL))),
        errors=str(len(report.of(Verdict.INCONCLUSIVE))),
        time=f"{report.seconds:.3f}",
    )
    for subject in dict.fromkeys(check.subject for check in report.checks):
        checks = [check for check in report.checks if check.subject == subject]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=subject,
            tests=str(len(checks)),
            failures=str(sum(check.verdict is Verdict.FAIL for check in checks)),
            errors=str(sum(check.verdict is Verdict.INCONCLUSIVE for check in checks)),
        )
        for check in checks:
            name = " / ".join(part for part in (check.case, check.side, check.dtype) if part)
            case = ElementTree.SubElement(suite, "testcase", classname=subject, name=name)
            if check.verdict is not Verdict.PASS:
                kind = "failure" if check.verdict is Verdict.FAIL else "error"
                element = ElementTree.SubElement(case, kind, message=check.finding)
                element.text = "\n".join(
                    [*map(str, check.comparisons), f"repeat: {check.command or '-'}"]
                )
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write a text file, in the place of an older one, so that nobody ever sees half of it."""
    write_bytes(path, [text.encode()], overwrite=True)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    return data
