"""Turn published measurements into typed rows: one explicit column for every setting, marks for
what was inferred.

    python -m tools.convert_measured training FILE... --out docs/data/measured/training.csv.gz

`dscale validate KIND` reads the result without looking at a remark. Rows that lack what a
prediction needs are left out, and the reasons printed. Columns that no row uses are not written.
"""

import argparse
import csv
import gzip
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.evidence import collectives, finetune, inference_rows, memory, serving_rows, training_rows
from dragonscale.evidence.rows import read_measured

KINDS = {
    "training": training_rows.FORMS,
    "inference": inference_rows.FORMS,
    "serving": serving_rows.FORMS,
    "collectives": collectives.FORMS,
    "memory": memory.FORMS,
    "finetune": finetune.FORMS,
}


def cell(value: Any) -> str:
    """A value as the typed files have it: floats to the last digit, so that nothing is lost."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def text_of(records: Sequence[msgspec.Struct]) -> str:
    """Records as CSV; a field at its default is an empty cell."""
    fields = msgspec.structs.fields(type(records[0]))
    used = [
        field
        for field in fields
        if field.required or any(getattr(record, field.name) != field.default for record in records)
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in used])
    for record in records:
        values = [(getattr(record, field.name), field) for field in used]
        writer.writerow(
            ["" if not field.required and value == field.default else cell(value) for value, field in values]
        )
    return out.getvalue()


def convert(kind: str, files: Sequence[str | Path]) -> tuple[str, Counter[str]]:
    """The typed rows of some files, and how many rows were left out for which reason."""
    records: list[Any] = []
    left: Counter[str] = Counter()
    for file in files:
        found, reasons = read_measured(file, kind, KINDS[kind])
        records += found
        left.update(reasons)
    return text_of(records), left


def main() -> None:
    parser = argparse.ArgumentParser(description="Turn published measurements into typed rows.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--out", required=True, help="a .csv, or a .csv.gz")
    options = parser.parse_args()
    text, left = convert(options.kind, options.files)
    content = text.encode()
    # No time stamp in the archive, so that the same rows give the same bytes.
    Path(options.out).write_bytes(gzip.compress(content, mtime=0) if options.out.endswith(".gz") else content)
    print(f"{text.count(chr(10)) - 1} rows to {options.out}")
    for reason, count in left.most_common():
        print(f"  left out: {count} ({reason})")


if __name__ == "__main__":
    main()
