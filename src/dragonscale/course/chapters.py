"""The chapters of the course, in order, and the problems of each."""

from dataclasses import dataclass
from importlib import import_module

from dragonscale.course.problem import PROBLEMS, Problem
from dragonscale.errors import unknown


@dataclass(frozen=True)
class Chapter:
    """A chapter: its slug, its title, the question it answers; `book` is the book's chapter, where it has one."""

    slug: str
    title: str
    about: str
    book: str = ""

    @property
    def page(self) -> str:
        return f"docs/course/{self.slug}.md"


CHAPTERS: tuple[Chapter, ...] = (
    Chapter("rooflines", "Rooflines", "What bounds an operation: compute, memory or the network?", "roofline"),
    Chapter("tpus", "TPUs", "What a TPU is made of, and how fast each part feeds the next.", "tpus"),
    Chapter("sharding", "Sharding", "Arrays split over a mesh: which collectives a matmul needs.", "sharding"),
    Chapter("transformers", "Transformers", "Parameters, FLOPs and caches of a model, by hand.", "transformers"),
    Chapter("training", "Training", "DP, FSDP, TP and pipelines: when each becomes bound by the network.", "training"),
    Chapter(
        "llama3-training", "Training LLaMA-3", "A 70B model on TPU pods: memory, days, the split.", "applied-training"
    ),
    Chapter(
        "inference", "Inference", "Prefill and decode, KV caches, batches, latency against throughput.", "inference"
    ),
    Chapter(
        "llama3-serving", "Serving LLaMA-3", "A 70B model on small slices: how fast, how cheap.", "applied-inference"
    ),
    Chapter("profiling", "Profiling", "HLO and traces: what is far from its roofline, and why.", "profiling"),
    Chapter("jax", "JAX", "Shardings as programs: what lies where, what overlaps.", "jax-stuff"),
    Chapter("gpus", "GPUs", "SMs, NVLink and fat trees, and what they change.", "gpus"),
    Chapter("experts", "Experts", "MoE and expert parallelism: AllToAlls against small matmuls."),
    Chapter("pipelines", "Pipelines", "Stages, schedules, bubbles and what stays in memory."),
    Chapter("disaggregation", "Disaggregation", "Prefill and decode on chips of their own: ratios and transfers."),
    Chapter("formats", "FP8 and FP4", "Smaller numbers: what gets faster, what does not."),
    Chapter("finetuning", "Fine-tuning", "Full, LoRA and QLoRA: what must be held, what is computed."),
    Chapter("goodput", "Goodput", "Failures, checkpoints and SLOs: what is left of the peak."),
)


def find_chapter(slug: str) -> Chapter:
    """The chapter of a slug."""
    for one in CHAPTERS:
        if one.slug == slug:
            return one
    raise unknown("chapter", slug, [one.slug for one in CHAPTERS])


def problems_of(slug: str) -> tuple[Problem, ...]:
    """The problems of a chapter, in the order of its files."""
    import_module(f"dragonscale.course.problems.{slug.replace('-', '_')}")
    return tuple(one for one in PROBLEMS.values() if one.chapter == slug)


def all_problems() -> tuple[Problem, ...]:
    """Every problem, chapter by chapter."""
    return tuple(one for chapter in CHAPTERS for one in problems_of(chapter.slug))
