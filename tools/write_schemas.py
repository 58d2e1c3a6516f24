"""The JSON Schemas of what `--json` prints, generated from the records themselves."""

import json
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.evidence.verify.records import VerifyReport as VerifyReport
from dragonscale.reports.calc.records import CalcReport
from dragonscale.reports.calibrate.records import CalibrationReport
from dragonscale.reports.chips.report import ChipReport
from dragonscale.reports.collective.report import CollectiveReport
from dragonscale.reports.compare.records import CompareReport
from dragonscale.reports.estimate.records import EstimateReport
from dragonscale.reports.explain.formulas import Explanation
from dragonscale.reports.hlo.arrays import LayoutFacts
from dragonscale.reports.hlo.op import HloOp
from dragonscale.reports.hlo.program import HloModuleReport
from dragonscale.reports.learn.records import CourseReport, LessonReport, ProblemReport
from dragonscale.reports.models.records import ModelReport
from dragonscale.reports.profile.records import ProfileReport
from dragonscale.reports.roofline.report import RooflineReport
from dragonscale.reports.serve.records import ServeReport
from dragonscale.reports.shard.report import ShardReport
from dragonscale.reports.simulate.records import SimulateReport
from dragonscale.reports.sweep.records import SweepReport
from dragonscale.reports.train.records import TrainReport
from dragonscale.reports.validate.run_records import RunScore

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
    "roofline": RooflineReport,
    "serve": ServeReport,
    "shard": ShardReport,
    "simulate": SimulateReport,
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
