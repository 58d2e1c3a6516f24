"""What people ask for that is not here: said in a sentence, with what comes nearest."""

FLAGS = {
    "--lora": "LoRA is not planned by `dscale train` yet; `dscale estimate MODEL --lora 16` counts what it holds.",
    "--qlora": "QLoRA is not planned by `dscale train` yet; `dscale estimate MODEL --lora 16` counts what it holds.",
    "--rlhf": "RLHF takes turns at serving and training; plan them apart, by `dscale serve` and `dscale train`.",
    "--grpo": "GRPO takes turns at serving and training; plan them apart, by `dscale serve` and `dscale train`.",
    "--spot": "Spot chips that are taken away are not modelled; give their price by --price and add restarts yourself.",
}
"""By the flag that was typed, whatever the command."""

COMMANDS = {
    "doctor": "There is no `dscale doctor`; `dscale --version` and `make test` say whether all is well.",
}
"""By the first word of the line."""
