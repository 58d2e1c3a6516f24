"""A recording of the CPU alone gets advice that a CPU can follow."""

import json

import dragonscale as ds


def test_a_cpu_is_not_told_to_replay_a_graph(tmp_path):
    ops = [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": 1, "tid": 1, "ts": 100 + 5 * place, "dur": 2}
        for place, name in enumerate(("addmm", "relu", "addmm", "add_"))
    ]
    path = tmp_path / "cpu.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": ops, "deviceProperties": []}))
    found = ds.profile(str(path))
    assert [line.cause for line in found.gaps] == ["between ops, in the framework"]
    assert "graph" not in str(found)
