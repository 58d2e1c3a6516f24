"""The JSON Schemas of what `--json` prints, generated from the records themselves."""

import json
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.commands.calc import CalcReport
from dragonscale.commands.calibrate.calibrate_records import CalibrationReport
from dragonscale.commands.chips_report import ChipReport
from dragonscale.commands.collective_report import CollectiveReport
from dragonscale.commands.compare.compare_records import CompareReport
from dragonscale.commands.estimate.estimate_records import EstimateReport
from dragonscale.commands.explain.formulas import Explanation
from dragonscale.commands.hlo.hlo_records import HloModuleReport, HloOp, LayoutFacts
from dragonscale.commands.learn import CourseReport, LessonReport, ProblemReport
from dragonscale.commands.models import ModelReport
from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.commands.rl.rl_records import RlReport
from dragonscale.commands.roofline_report import RooflineReport
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.shard_report import ShardReport
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.commands.sweep.sweep_records import SweepReport
from dragonscale.commands.traffic import TrafficReport
from dragonscale.commands.train.train_records import TrainReport
from dragonscale.commands.validate.validate_records import RunScore
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
