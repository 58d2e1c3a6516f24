"""Plans in the words of the software that runs them, and back.

A plan is a point in one small space (`training.plan.Plan`, `serving.plan.ServingPlan`). Every trainer and every engine
has its own names for that space. A **target** is one of them: it says a run in that software's words (`write`) and
reads its words into a run (`read`), so what is exported can be imported again, and what people run today can be judged.
`targets.toml` lists the targets, `software.py` has what writes and reads them:

- `trainers/` and `engines/`: a folder or a module for each software. `write` makes its config files and the command of
  one process.
- `launchers/`: what starts those commands on many hosts (a shell script with torchrun, Slurm, Kubernetes, SkyPilot).
- `loads.py`: load generators that send the planned traffic to an engine.

The words themselves are data. `terms/NAME.toml` has groups of settings with the rules by which a plan fills them in,
tables of words that writers take forwards and readers backwards, options that change nothing, what is refused or to be
seen to and when, and sentences (`terms.py`). Names of flags and keys are never just typed: `keys/` holds, for one
released version of each software, every name that its own parser takes, and a writer refuses a name that is not there
(`keys.py`). Those tables are made from the software itself by `python -m tools.software NAME --keys`.

What a software cannot say is a `PlanDifference`: the plan as it would run instead, so that its time and memory can be
told. A plan that a software refuses is refused here (`Infeasible`), with the nearest that it takes.
"""
