_dscale() {
  local cur prev command kind word i at=0
  local -a told
  cur="${words[CURRENT]}" prev="${words[CURRENT-1]}"
  if (( CURRENT == 2 )); then
    compadd -- ${=_dscale_first} --help --version
    return
  fi
  command="${words[2]}" i=3
  if [[ -n "$(_dscale_next "$command")" ]]; then
    if (( CURRENT == 3 )); then
      compadd -- ${=$(_dscale_next "$command")} --help
      return
    fi
    command="$command ${words[3]}" i=4
  fi
  if [[ $cur == --*=* ]]; then
    prev="${cur%%=*}"
    compset -P '*='
  elif [[ $cur == -* ]]; then
    told=("${(@f)$(_dscale_told "$command")}")
    _describe -o 'flag' told
    return
  fi
  kind="$(_dscale_kind "$command $prev")"
  if [[ $prev != --* || $kind == switch ]]; then
    # not the value of a flag: which place is it?
    for (( ; i < CURRENT; i++ )); do
      word="${words[i]}"
      if [[ $word == --* ]]; then
        [[ $word == *=* || "$(_dscale_kind "$command $word")" == switch ]] || (( i++ ))
      else
        (( at++ ))
      fi
    done
    kind="$(_dscale_kind "$command $at")"
  fi
  case "$kind" in
    "") ;;
    files) _files ;;
    models) compadd -- ${=$(_dscale_words models)}; _files ;;
    slices) compadd -S '' -- ${=$(_dscale_words slices)} ;;
    *) compadd -- ${=$(_dscale_words "$kind")} ;;
  esac
}
if [[ "${funcstack[1]}" == "_dscale" ]]; then
  _dscale "$@"
else
  compdef _dscale dscale
fi
