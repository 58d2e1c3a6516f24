"""Solutions of the chapter on GPUs."""

from tests.book import solve_gpus_chips, solve_gpus_examples, solve_gpus_network, solve_gpus_rules
from tests.book.casebook import NOT_COMPUTED

__all__ = ["solve_gpus_chips", "solve_gpus_examples", "solve_gpus_network", "solve_gpus_rules"]

NOT_COMPUTED |= {
    "gpus.empirical_peak": "Points of the book's plot of its own NCCL runs; the catalogue has the 450 GB/s.",
    "gpus.grace_c2c": (
        "What a product name stands for (one or two GPUs and a Grace CPU) is no calculation; see the errata for its "
        "bandwidth."
    ),
    "gpus.q1_5_smem:tpu_vmem": (
        "The book's 120 MB for TPU VMEM is given, not derived, and contradicts its own 128 MiB, which the catalogue "
        "has."
    ),
}
