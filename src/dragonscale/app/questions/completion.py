"""What `dscale completion` can be asked."""

from dragonscale.app.questions.flag import Question, Text

SHELLS = ("bash", "zsh", "fish")


class CompletionQuestion(Question):
    """A shell."""

    shell: Text = Text(value="SHELL", place=True, offers=SHELLS)
    """bash: send what is printed to ~/.local/share/bash-completion/completions/dscale, or write `source <(dscale
    completion bash)` into ~/.bashrc. zsh: to ~/.zfunc/_dscale, with fpath+=(~/.zfunc) before compinit in ~/.zshrc.
    fish: to ~/.config/fish/completions/dscale.fish."""
