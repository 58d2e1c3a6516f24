# dscale completion for fish
function __dscale_at
    set -l words (commandline -opc)
    set -e words[1]
    test (count $words) -ge (count $argv); or return 1
    test "$words[1..(count $argv)]" = "$argv"
end
complete -c dscale -f
