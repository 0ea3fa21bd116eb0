#!/bin/sh
# Tests of the program from outside: run.sh KVTILE MAKE_MODEL [plain|sanitized] [CASE-FILE]...
#
# A case file is text, a line a thing:
#   == NAME                  begins a test
#   needs COMMAND            skips it where a command is missing; "needs plain" also where sanitizers are built in
#   $ COMMAND                shell to run, several lines make one script; `kvtile` is the program, `made FILE KEY=N...` makes a
#                            model, `interrupt FILE COMMAND` presses Ctrl-C once FILE has something in it, `serving ARGUMENT...` starts a
#                            server ($server, at $url, what it says in `log`) that the script must end; $PLAIN and $BIASED
#                            are the repository's models, $ROOT the tree, and the current folder is empty
#   status N                 what the script must end with
#   stdout REGEX, stderr REGEX, no-stdout, no-stderr
#                            a line that must be there (extended regular expression); that nothing is
#   one-line                 standard error is one line that begins with "kvtile: "
# Ends with "N passed, N failed".
[ $# -ge 2 ] || { echo "usage: run.sh KVTILE MAKE_MODEL [plain|sanitized] [CASE-FILE]..." >&2; exit 2; }
absolute() { case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac }
KVTILE=$(absolute "$1") MAKE_MODEL=$(absolute "$2") KIND=${3:-plain}
shift 2
[ $# -eq 0 ] || shift
here=$(cd "$(dirname "$0")" && pwd) || exit 2
ROOT=$(cd "$here/../.." && pwd) || exit 2
[ $# -gt 0 ] || set -- "$here"/cases/*.case
for program in "$KVTILE" "$MAKE_MODEL"; do
    [ -x "$program" ] || { echo "run.sh: $program is no program" >&2; exit 2; }
done
PLAIN=$ROOT/models/plain.gguf BIASED=$ROOT/models/biased.gguf
LC_ALL=C
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
unset KVTILE_CONFIG
export XDG_CONFIG_HOME KVTILE MAKE_MODEL ROOT PLAIN BIASED LC_ALL XDG_CACHE_HOME

cat >"$work/prelude" <<'END'
kvtile() { "$KVTILE" "$@"; }
made() { "$MAKE_MODEL" "$@"; }
interrupt() {
    file=$1
    shift
    env --default-signal=INT "$@" &
    pid=$!
    tries=0
    while [ ! -s "$file" ] && [ $tries -lt 1200 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -INT $pid
    wait $pid
}
serving() {
    : > url
    "$KVTILE" serve --port 0 --no-kv-check "$@" > url 2> log &
    server=$!
    tries=0
    while [ ! -s url ] && [ $tries -lt 600 ] && kill -0 $server 2> /dev/null; do sleep 0.05; tries=$((tries + 1)); done
    url=$(cat url)
}
END

passed=0 failed=0 skipped=0
name='' script='' ran='' skip='' faults=''

fault() { faults="$faults
    $1"; }

run_script() {
    ran=yes
    rm -rf "$work/room"
    mkdir "$work/room"
    (cd "$work/room" && { cat ../prelude; printf '%s\n' "$script"; } >../script && exec timeout 300 sh ../script) \
        >"$work/stdout" 2>"$work/stderr" </dev/null
    status=$?
    grep -q 'Sanitizer\|runtime error:\|assertion failed' "$work/stderr" && fault "an error of our own, see below"
}

expect() {
    case $1 in
    'status '*) [ "$status" = "${1#status }" ] || fault "status $status, not ${1#status }" ;;
    'stdout '*) grep -aEq -- "${1#stdout }" "$work/stdout" || fault "standard output has no line like ${1#stdout }" ;;
    'stderr '*) grep -aEq -- "${1#stderr }" "$work/stderr" || fault "standard error has no line like ${1#stderr }" ;;
    no-stdout) [ ! -s "$work/stdout" ] || fault "standard output is not empty" ;;
    no-stderr) [ ! -s "$work/stderr" ] || fault "standard error is not empty" ;;
    one-line) [ "$(wc -l <"$work/stderr")" = 1 ] && grep -q '^kvtile: ' "$work/stderr" ||
        fault "standard error is not one line 'kvtile: ...'" ;;
    *) fault "the case file says '$1', which means nothing" ;;
    esac
}

finish() {
    [ -n "$name" ] || return 0
    if [ -n "$skip" ]; then
        echo "skipped $case_name: $name ($skip)"
        skipped=$((skipped + 1))
    elif [ -z "$faults" ] && [ -n "$ran" ]; then
        passed=$((passed + 1))
    else
        [ -n "$ran" ] || fault "nothing was run"
        echo "FAILED  $case_name: $name$faults"
        for stream in stdout stderr; do
            sed '13,$d' "$work/$stream" | cut -c 1-200 | sed "s/^/      $stream: /"
            tail -n +13 "$work/$stream" | tail -n 6 | cut -c 1-200 | sed "s/^/      $stream: ... /"
        done
        failed=$((failed + 1))
    fi
    name='' script='' ran='' skip='' faults=''
}

need() {
    case $1 in
    plain) [ "$KIND" = plain ] || skip="sanitizers are built in" ;;
    *) command -v "$1" >/dev/null || skip="$1 is not there" ;;
    esac
}

for file; do
    case_name=$(basename "$file" .case)
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        '' | '#'*) ;;
        '== '*)
            finish
            name=${line#== } ;;
        'needs '*) need "${line#needs }" ;;
        '$ '*) script="$script
${line#\$ }" ;;
        *)
            [ -z "$skip" ] || continue
            [ -n "$ran" ] || run_script
            expect "$line" ;;
        esac
    done <"$file"
    finish
done
[ $skipped = 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
