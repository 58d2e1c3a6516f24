"""A framework's config as a plan of the RL planner, and a planned step as a framework's config."""

from dragonscale.exports.rl.rl_file import RlFile
from dragonscale.simulation.rl.frameworks import framework
from dragonscale.simulation.rl.step import RlPlan, RlStep
from dragonscale.simulation.rl.work import RlWork, answers_jobs, fullest_job, handed, packed_job


def plan_of(file: RlFile, work: RlWork) -> RlPlan:
    """The plan that a config says, for a step's work."""
    row = framework(file.stack)
    train_slice, rollout_slice = file.pools
    work = handed(work, row, file.trainer)
    if file.by_answers and not work.padded:
        job, fullest = answers_jobs(work, train_slice, file.trainer, file.train)
    else:
        job = packed_job(work, train_slice, file.trainer, file.train.replicas * file.train.microbatch)
        fullest = fullest_job(work, job)
    ahead = file.ahead if file.mode == "async" else 0.0
    return RlPlan(file.mode, row, job, file.train, file.rollout, rollout_slice, ahead, fullest)


def file_of(step: RlStep, stack: str, model: str, on: str) -> RlFile:
    """A judged step as a run of a framework, of a model and a slice by the names that were given."""
    work, plan = step.work, step.plan
    return RlFile(
        stack=stack or plan.framework.name,
        model=model,
        slice=on,
        algorithm=work.algorithm,
        prompts=work.prompts,
        samples=work.samples,
        prompt=work.prompt,
        output=work.lengths.cap,
        mean_output=float(work.lengths.mean),
        spread=None if work.lengths.measured else work.lengths.spread,
        updates=work.updates,
        reference=work.reference,
        mode=plan.mode,
        ahead=plan.ahead,
        trainer=plan.job.stack.name,
        train_chips=plan.job.slice.chips,
        rollout_chips=plan.pool.chips,
        train=plan.train,
        rollout=plan.rollout,
        share=plan.framework.share(plan.mode),
    )
