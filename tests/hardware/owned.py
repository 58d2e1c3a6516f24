"""The chips that people own, by family, as the tests of several areas name them."""

ADA = ["rtx4060", "rtx4060ti", "rtx4070", "rtx4070-super", "rtx4070ti", "rtx4070ti-super", "rtx4080", "rtx4080-super"]
AMPERE = ["rtx3060", "rtx3060ti", "rtx3070", "rtx3070ti", "rtx3080", "rtx3080ti", "rtx3090ti"]
BLACKWELL = ["rtx5060", "rtx5060ti", "rtx5070", "rtx5070ti", "rtx5080"]
DESKTOP = ["rtx2080ti", *ADA, *AMPERE, *BLACKWELL]
"""GeForce cards, between which the driver lets make no direct copies."""
ADA += [f"rtx40{number}-laptop" for number in (60, 70, 80, 90)] + ["rtx4000ada", "rtx4500ada", "rtx5000ada"]
AMPERE += ["a4000", "a5000", "a40"]
BLACKWELL += ["rtx5080-laptop", "rtx5090-laptop", "rtxpro4000", "rtxpro4500", "rtxpro5000"]
TURING = ["rtx2080ti", "rtx8000", "titanrtx"]
AMPERE += ["orin"]
BLACKWELL += ["thor"]
CARDS = TURING + ADA + AMPERE + BLACKWELL
APPLE = [f"m{generation}{size}" for generation in "12345" for size in ("", "pro", "max")]
APPLE += ["m1ultra", "m2ultra", "m3ultra"]
PASCAL = ["p40", "p100", "gtx1080ti"]
INSTINCT = ["mi50", "mi60", "mi100", "mi210"]
RADEON = ["rx7900xtx", "w7900", "rx9070xt", "r9700", "strix-halo"]
ARC = ["a770", "b580", "b60", "b50"]
OTHER_CARDS = PASCAL + INSTINCT + RADEON + ARC
"""Cards without what the tests of NVIDIA's and AMD's larger chips ask for: matrix units, or SMs."""
