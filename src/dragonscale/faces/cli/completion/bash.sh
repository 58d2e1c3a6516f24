_dscale() {
  local cur prev command kind word i at=0
  cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  # bash breaks --flag=value into three words
  if [[ $cur == "=" ]]; then cur=""
  elif [[ $prev == "=" ]]; then prev="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  if [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W "$_dscale_first --help --version" -- "$cur"))
    return
  fi
  command="${COMP_WORDS[1]}" i=2
  if [[ -n "$(_dscale_next "$command")" ]]; then
    if [[ $COMP_CWORD -eq 2 ]]; then
      COMPREPLY=($(compgen -W "$(_dscale_next "$command") --help" -- "$cur"))
      return
    fi
    command="$command ${COMP_WORDS[2]}" i=3
  fi
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$(_dscale_flags "$command")" -- "$cur"))
    return
  fi
  kind="$(_dscale_kind "$command $prev")"
  if [[ $prev != --* || $kind == switch ]]; then
    # not the value of a flag: which place is it?
    for ((; i < COMP_CWORD; i++)); do
      word="${COMP_WORDS[i]}"
      if [[ $word == --* ]]; then
        if [[ ${COMP_WORDS[i+1]} == "=" ]]; then i=$((i + 2))
        elif [[ "$(_dscale_kind "$command $word")" != switch ]]; then i=$((i + 1))
        fi
      else at=$((at + 1))
      fi
    done
    kind="$(_dscale_kind "$command $at")"
  fi
  case "$kind" in
    "") ;;
    files) _dscale_paths "$cur" ;;
    models) COMPREPLY=($(compgen -W "$(_dscale_words models)" -- "$cur")); [[ ${#COMPREPLY[@]} -gt 0 ]] || _dscale_paths "$cur" ;;
    slices) COMPREPLY=($(compgen -W "$(_dscale_words slices)" -- "$cur")); compopt -o nospace 2>/dev/null ;;
    *) COMPREPLY=($(compgen -W "$(_dscale_words "$kind")" -- "$cur")) ;;
  esac
}
_dscale_paths() {
  local word
  compopt -o filenames 2>/dev/null
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$1")
}
complete -F _dscale dscale
