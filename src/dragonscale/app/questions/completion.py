"""What `dscale completion` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import Text

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class CompletionQuestion:
    """A shell."""

    shell: Text = Text(value="SHELL", place=True, offers=SHELLS)
    """bash: send what is printed to ~/.local/share/bash-completion/completions/dscale, or write `source <(dscale
    completion bash)` into ~/.bashrc. zsh: to ~/.zfunc/_dscale, with fpath+=(~/.zfunc) before compinit in ~/.zshrc.
    fish: to ~/.config/fish/completions/dscale.fish."""
