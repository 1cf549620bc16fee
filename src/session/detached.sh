# A detached session from outside its shell: sh -c THIS NAME VERB ... in a short exec of its own. The directory NAME holds
#   in wake  FIFOs: numbers of commands; lines that end a wait   main own seq  pids of M and S, and S's command
#   N.n* N.f  the frame, in part and whole   N.b  when it came   N.t  it was taken   N.o N.e  output   N.r  it is over
#   N.x N.w  room for a trailer when there is none in N.o or N.e, and whether one is there
# start PROGRAM...   makes it, runs the shell, tells what it says first
# run N BYTES        hands over a frame of stdin, BYTES long (0: it is there, or never will be) if nobody has yet, tells what
#                    comes of it; a line of stdin then says that all of it was kept
# int N, tree N, shell N    steps of the ladder, while N runs: one that comes late must not hit the next, int may be early
# end, close         kills it all, and removes what is left; close: also the variables kept for a new shell
# Exit: 126 no place, 127 no such program or no setsid; of run: 137 the shell is dead, 123 it was before the frame came,
# 122 the frame never came.
d=/dev/shm/$0
[ -d "$d" ] || d=/tmp/$0
verb=$1
shift
E=0
born() { read -r l </proc/self/stat && set -- ${l##*) } && echo "${20}"; }
lives() { read -r m <"$d/main" && [ "/proc/$m/fd/0" -ef "$d/in" ]; } 2>/dev/null
copy() { cat <&4; cat <&5 >&2; }
last() { [ ! -e "$d/$1.w" ] || { cat "$d/$1.x"; cat "$d/$1.x" >&2; }; }
follow() {
    exec 3<>"$d/wake" 4<"$d/$1.o" 5<"$d/$1.e"
    while [ -e /proc/$$ ]; do sleep 0.5 || sleep 1; echo; done </dev/null 1<>"$d/wake" 2>/dev/null 3<&- 4<&- 5<&- &
    while [ ! -e "$d/$1.r" ]; do
        copy
        lives || [ -e "$d/$1.r" ] || { [ "$1" = 0 ] && [ $((E += 1)) -lt 20 ]; } || { E=137; break; }
        read -r l <&3
    done
    [ $E = 137 ] || E=0
    copy
    last "$1"
    kill $!
    exec 3<&-
}
gone() {
    rm -f "$d/$1.f"
    for f in o e; do [ ! -e "$d/$1.$f" ] || : >"$d/$1.$f"; done
    rm -f "$d/$1".*
}
run() {
    [ -e "$d/$1.f" ] || lives || { [ "$2" -gt 0 ] && exit 123 || exit 137; }
    gone $(($1 - 1))
    : >>"$d/$1.o"
    : >>"$d/$1.e"
    if [ ! -e "$d/$1.f" ]; then
        born >"$d/$1.b"
        head -c "$2" >"$d/$1.n$$"
        printf %8192s "" >"$d/$1.x" && [ "$2" -gt 0 ] && [ "$(wc -c <"$d/$1.n$$")" -eq "$2" ] || ! (set -C; : >"$d/$1.t") 2>/dev/null || exit 122
        [ -e "$d/$1.t" ] || mv "$d/$1.n$$" "$d/$1.f"
    else
        head -c "$2" >/dev/null
    fi
    echo "$1" 1<>"$d/in"
    follow "$1"
    lives || exit 137
    read -r l && gone "$1"
}
list() {
    t=
    for f in /proc/[0-9]*/stat; do
        { read -r l <"$f"; } 2>/dev/null || continue
        p=${l%% *}
        set -- ${l##*) }
        case $1 in Z) continue ;; esac
        t="$t $p:$2:$4:${20}"
    done
}
below() {
    local e
    for e in $t; do
        case $e in *:"$1":*:*) [ "${e##*:}" -lt "$2" ] || { below "${e%%:*}" 0; kill -9 "${e%%:*}"; E=1; } ;; esac
    done
}
all() {
    local e
    kill -9 "$1"
    below "$1" 0
    for e in $t; do
        case $e in "$1":*|*:*:"$1":*) kill -9 "${e%%:*}"; E=1 ;; esac
    done
}
often() {
    for i in 1 2 3 4 5 6 7 8; do
        E=0
        list
        "$@"
        [ $E = 1 ] || break
    done
    E=0
}
case $verb in
start)
    command -v setsid >/dev/null && command -v "$1" >/dev/null || exit 127
    for d in /dev/shm /tmp; do mkdir -m 700 "$d/$0" 2>/dev/null && break; done
    d=$d/$0
    mkfifo "$d/in" "$d/wake" && : >"$d/0.o" && : >"$d/0.e" && echo 0 >"$d/seq" && echo 0 >"$d/own" || exit 126
    setsid setsid "$@" <>"$d/in" >/dev/null 2>&1
    follow 0
    ;;
run) run "$@" ;;
*)
    exec 2>/dev/null
    case $verb in close) rm -f "/dev/shm/${0%.*}" ;; esac
    read -r m <"$d/main" || exit 0
    read -r s <"$d/own"
    read -r c <"$d/seq"
    i=0
    while [ "$verb" = int ] && [ "$c" -lt "$1" ] && [ $((i += 1)) -lt 30 ]; do
        sleep 0.1 || sleep 1
        read -r c <"$d/seq"
    done
    case $verb:$c in
    int:"$1") [ -e "$d/$c.r" ] || { lives && kill -INT "-$m"; } ;;
    tree:"$1") [ -e "$d/$c.r" ] || { read -r b <"$d/$c.b" && often below "$s" "$b"; } ;;
    shell:"$1") [ -e "$d/$c.r" ] || { lives && kill -9 "$s"; } ;;
    end:*|close:*) often all "$m"; rm -rf "$d" ;;
    esac
    ;;
esac
exit $E
