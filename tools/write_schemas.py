"""The JSON Schemas of what `--json` prints, generated from the records themselves."""

import json
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.app.calc import CalcReport
from dragonscale.app.calibrate.calibrate_records import CalibrationReport
from dragonscale.app.chips_report import ChipReport
from dragonscale.app.collective_report import CollectiveReport
from dragonscale.app.compare.compare_records import CompareReport
from dragonscale.app.estimate.estimate_records import EstimateReport
from dragonscale.app.explain.formulas import Explanation
from dragonscale.app.hlo.op import HloOp, LayoutFacts
from dragonscale.app.hlo.program import HloModuleReport
from dragonscale.app.learn import CourseReport, LessonReport, ProblemReport
from dragonscale.app.models import ModelReport
from dragonscale.app.profile.profile_records import ProfileReport
from dragonscale.app.rl.rl_records import RlReport
from dragonscale.app.roofline_report import RooflineReport
from dragonscale.app.serve.serve_records import ServeReport
from dragonscale.app.shard_report import ShardReport
from dragonscale.app.simulate.simulate_records import SimulateReport
from dragonscale.app.sweep.sweep_records import SweepReport
from dragonscale.app.traffic import TrafficReport
from dragonscale.app.train.train_records import TrainReport
from dragonscale.app.validate.validate_records import RunScore
from dragonscale.evidence.verify.records import VerifyReport as VerifyReport

DIRECTORY = Path(__file__).parents[1] / "docs" / "schemas"
RECORDS: dict[str, Any] = {
    "calc": CalcReport,
    "calibrate": CalibrationReport,
    "chip": ChipReport,
    "collective": CollectiveReport,
    "compare": CompareReport,
    "estimate": EstimateReport,
    "explain": Explanation,
    "hlo-layout": LayoutFacts,
    "hlo-op": HloOp,
    "hlo-program": HloModuleReport,
    "learn": CourseReport,
    "learn-chapter": LessonReport,
    "learn-problem": ProblemReport,
    "model": ModelReport,
    "profile": ProfileReport,
    "rl": RlReport,
    "roofline": RooflineReport,
    "serve": ServeReport,
    "shard": ShardReport,
    "simulate": SimulateReport,
    "traffic": TrafficReport,
    "sweep": SweepReport,
    "train": TrainReport,
    "validate-run": RunScore,
    "verify": VerifyReport,
}


def schema_text(name: str) -> str:
    """One schema as the text of its file."""
    return json.dumps(msgspec.json.schema(RECORDS[name]), indent=1) + "\n"


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name in RECORDS:
        (DIRECTORY / f"{name}.json").write_text(schema_text(name))
