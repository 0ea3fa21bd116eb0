# complete.zsh FOLDER LINE...: what zsh offers at the end of each line, with the completions in FOLDER, in a shell of its own.
zmodload zsh/zpty || exit 1
folder=$1
shift
zpty z zsh -f -i
await() { # everything up to a mark
    local part
    seen=
    while zpty -r z part; do
        seen+=$part
        [[ $seen == *"$1"* ]] && return
    done
}
zpty -w z "PS1= PS2=; stty -echo; fpath=($folder \$fpath); autoload -Uz compinit; compinit -u -D"
# There compadd says what fits of what it is given, and try, in the place of Tab, offers without a change to the line.
cat <<'END' | while IFS= read -r line; do zpty -w z "$line"; done
compadd() {
    local -a hits
    [[ ${@[1,(i)(-|--)]} == *-(O|A|D)* ]] && { builtin compadd "$@"; return }
    builtin compadd -A hits "$@"
    print -rl -- $hits
    builtin compadd "$@"
}
try() {
    print -r -- "<<"
    _main_complete
    print -r -- ">>"
    compstate[insert]= compstate[list]=
}
zle -C try list-choices try
bindkey '^I' try
print -r -- rea''dy
END
await ready
for l in "$@"; do
    zpty -w -n z "$l"$'\t'
    await '>>'
    print -r -- "== $l"
    print -r -- "${${${seen#*<<}%>>*}//$'\r'/}"
    zpty -w -n z $'\C-u'
done
zpty -d z
