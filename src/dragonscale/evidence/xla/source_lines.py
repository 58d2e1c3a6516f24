"""Where in the user's program an instruction comes from.

Older compilers write the file and line into each instruction's metadata. Newer ones write a number: the stack frame, to
be looked up in four tables at the top of the module (file names, function names, locations and frames).

>>> tables = '''FileNames
... 1 "model.py"
...
... FileLocations
... 1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=3 end_column=9}
...
... StackFrames
... 7 {file_location_id=1 parent_frame_id=1}'''
>>> frame_lines(tables)
{7: 'model.py:12'}
>>> source_line(' metadata={op_name="f" stack_frame_id=7}', frame_lines(tables))
'model.py:12'
>>> source_line(' metadata={source_file="old.py" source_line=3}', {})
'old.py:3'
"""

import re

_FILE = re.compile(r'(\d+) "((?:[^"\\]|\\.)*)"\s*')
_LOCATION = re.compile(r"(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)\b.*\}\s*")
_FRAME = re.compile(r"(\d+) \{file_location_id=(\d+)\b.*\}\s*")
_OLD = re.compile(r'source_file="((?:[^"\\]|\\.)*)"(?:\s+source_line=(\d+))?')
_NEW = re.compile(r"stack_frame_id=(\d+)")


def frame_lines(tables: str) -> dict[int, str]:
    """The file and line of each stack frame's innermost call."""
    files: dict[str, str] = {}
    places: dict[str, str] = {}
    frames: dict[int, str] = {}
    table = ""
    for line in tables.splitlines():
        if line.strip().isalpha():
            table = line.strip()
        elif table == "FileNames" and (match := _FILE.fullmatch(line)):
            files[match[1]] = match[2]
        elif table == "FileLocations" and (match := _LOCATION.fullmatch(line)):
            places[match[1]] = f"{files.get(match[2], '?')}:{match[3]}"
        elif table == "StackFrames" and (match := _FRAME.fullmatch(line)):
            frames[int(match[1])] = places.get(match[2], "")
    return frames


def source_line(text: str, frames: dict[int, str]) -> str:
    """`file:line` of an instruction's metadata, or an empty string."""
    if old := _OLD.search(text):
        return f"{old[1]}:{old[2]}" if old[2] else old[1]
    new = _NEW.search(text)
    return frames.get(int(new[1]), "") if new else ""
