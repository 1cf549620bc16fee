# The session driver: bash, dash, busybox ash. An argument of the shell it runs in; it writes no file
# but the exported variables, below. The host puts lines before it that set __by_k, the session's
# token. See docs/internals/sessions.md.
#
# M, the shell that was started, keeps the three pipes and waits. S, its child, is the session. S
# reads a frame (a line of assignments), runs __by_c, and writes a trailer to both streams.
#   k session token   t u token of the command, in two halves: no trace or dump of variables joins them
#   c command   s status   x kind of the trailer   p pid of S   r where stderr goes: 8, or 7 merged
#   b what to do next: 0 read, 1 in a command, 2 close, 3 savepoint, 4 tell, 5 run in the savepoint, 6 sync
#   y keep the exported variables first, and see G after (2)   z IFS may be read-only   v w dialect   i interrupted (dash)
#   I interrupted before it began: ash's status of its last exit would be the command's
#   Y number of a sync   R read a line   a functions   g guard loop   m session loop   q h: reopen, first close 5 6
# Shells that have exited wait below S, each with its memory. In bash their number is kept small (b is 7): fl are
# their pids, fs writes down all that S is and kills all of them but the first, which becomes it again (fr).
# Detached (see detached.sh) the host also sets __by_D, the directory: a line of its FIFO says which frame is next.
#   Q number of the command   C who runs which command   T make a file, once   E its end can be read
#   F no room for it: in what was kept free   N next frame
__by_n='
' __by_s=0 __by_b=4 __by_i=0 __by_t=$__by_k __by_u= __by_c=: __by_q= __by_p=0 __by_r=8 __by_y= __by_z= __by_I=
IFS= read -r __by_l </proc/$$/maps
case $__by_l in
*/bash) __by_x=B __by_v=c __by_w= ;;
*/dash) __by_x=D __by_v=c __by_w=d ;;
*/busybox*) __by_x=A __by_v= __by_w= ;;
*) case ${BASH_VERSION:+1} in
    1) __by_x=B __by_v=c __by_w= ;;
    *) __by_x=A __by_v= __by_w= ;;
    esac ;;
esac
__by_h='exec 5<&- 6<&-; __by_q=1 __by_h='
# e: one write each, below PIPE_BUF for any path but the longest: whole among what background jobs write.
# d: the shell below is gone: its state was lost, ours is from before.
# G: M has been killed, but may take its time to die: a command that follows would be lost with it, so this one has no
# trailer. Its state, its flags (4: it exits) and its signals (256: SIGKILL) in /proc tell.
# o: 3 is open for writing, too: stdin never ends for us, also when who fed it has gone.
# K: a file beside, for what only we may read. Everybody in the sandbox can read our token and write there: what is not
# ours, or a link, is not used.
__by_a='
__by_f(){ return "$1"; }
__by_K(){
command test -O /dev/shm/.by-"$__by_k$1" || ( umask 077; set -C; : >/dev/shm/.by-"$__by_k$1" )
command test -O /dev/shm/.by-"$__by_k$1" && ! command test -L /dev/shm/.by-"$__by_k$1"
}
__by_R(){ case $__by_z in 1) command read -r __by_l ;; *) IFS= command read -r __by_l ;; esac; }
__by_G(){
__by_R </proc/$$/stat || __by_l=") X"
__by_l="${__by_l##*) } 0 0 0 0 0 0 0 "
case $__by_l in [ZX]*) command kill -9 "$__by_p" ;; esac
__by_l=${__by_l#* * * * * * }
case $((${__by_l%% *} & 4)) in 4) command kill -9 "$__by_p" ;; esac
__by_l=${__by_l#* * * * * * * * * * * * * * * * * * * * * * }
case $((${__by_l%% *} & 256)) in 256) command kill -9 "$__by_p" ;; esac
}
__by_o(){ exec 3<>/proc/$$/fd/0 7>/proc/$$/fd/1 8>/proc/$$/fd/2 </dev/null >&7 2>/dev/null; }
__by_e(){
case $__by_y in 2) __by_y=; __by_G ;; esac
case $__by_i in 1) __by_i=0 __by_s=130 ;; esac
__by_l="$__by_t$__by_u $__by_x ${__by_Y:-$__by_s} $__by_p $PWD"
command printf "\\036%s\\036\\n" "$__by_l" >&8 || __by_F
command printf "\\036%s\\036\\n" "$__by_l" >&7 || __by_F
case $__by_D in ?*) __by_E ;; esac
__by_b=0 __by_x=E __by_r=8 __by_Y=
}
__by_d(){
__by_s=$1
case $__by_q in 1) __by_o ;; esac
__by_t=$__by_k __by_u= __by_x=R __by_b=4
}'
# A command is taken once, by the file that only one can make; its frame is gone before that is, so an old line finds
# either. Who waits for a shell that died reads which command it had.
__by_N=
case $__by_D in
?*)
__by_Q=0
command printf "%s\n" "$$" >|"$__by_D/main"
__by_a=$__by_a'
__by_o(){ exec 7>>"$__by_D/$__by_Q.o" 8>>"$__by_D/$__by_Q.e" </dev/null >&7 2>/dev/null; }
__by_C(){ command printf "%s\n" "$__by_Q" 1<>"$__by_D/seq"; command printf "%s\n" "$__by_p" 1<>"$__by_D/own"; }
__by_E(){ : >|"$__by_D/$__by_Q.r"; command printf "\n" 1<>"$__by_D/wake"; }
__by_F(){ command printf "\\036%s\\036\\n" "$__by_l" 1<>"$__by_D/$__by_Q.x"; : >|"$__by_D/$__by_Q.w"; }
__by_T(){
case $- in
*C*) command : >"$1" ;;
*) command set -C; command : >"$1"; set -- "$?"; command set +C; return "$1" ;;
esac
}
__by_d(){
__by_s=$1
__by_R <"$__by_D/seq"
__by_Q=$__by_l
exec 7>>"$__by_D/$__by_Q.o" 8>>"$__by_D/$__by_Q.e"
__by_t=$__by_k __by_u= __by_x=R __by_b=4
}'
__by_N='
    __by_R <>"$__by_D/in" || continue
    case $__by_l in ""|*[!0-9]*) continue ;; esac
    __by_T "$__by_D/$__by_l.t" && command test -e "$__by_D/$__by_l.f" || continue
    __by_Q=$__by_l
    __by_C
    exec 3<"$__by_D/$__by_Q.f"
    __by_o' ;;
esac
__by_g='
case $__by_w in x) trap "" INT ;; *) trap : INT ;; esac
while :; do
( eval "$__by_h"; __by_o; eval "$__by_m" ) 2>/dev/null
__by_d "$?"; __by_p=0; __by_e
done'
# A job that a signal ends as it begins runs the trap of its parent, in bash: only S goes on as a session.
# Two loops: `break` and `continue` of a command end the inner one. After its first EXIT trap (w is x) a
# trap in ash that runs, or exits, puts the status of that exit into $?: who waits ignores the signal, and
# who is interrupted becomes another program.
__by_m='
eval "$__by_fr"
command read -r __by_p </proc/self/stat
__by_p=${__by_p%% *}
eval "$__by_fa"
case $__by_b in 5) command printf "\\036%s P 0 %s \\036\\n" "$__by_k" "$__by_p" >&7; case $__by_D in ?*) __by_C ;; esac ;; esac
while :; do while :; do
trap '\''__by_s=$?; __by_R </proc/self/stat || __by_l=$__by_p
case ${__by_l%% *} in "$__by_p") __by_x=X __by_b=4; case $__by_v in "") __by_w=x ;; esac; trap - EXIT; eval "$__by_g" ;; esac'\'' EXIT
trap '\''case $__by_b$__by_w in 1d) exec 2>/dev/null; __by_i=1; ${__by_0?} ;; 1x) exec sh -c "exit 130" ;; 1*) exit 130 ;; [05]*) __by_I=1 ;; esac'\'' INT
case $__by_b in 1) __by_s=0; __by_e ;; 4) __by_e ;; esac
case $__by_b in
5) ;;
*)'"$__by_N"'
    case $__by_z in
    1) command read -r __by_l <&3 ;;
    *) IFS= command read -r __by_l <&3 ;;
    esac || { command test -e /proc/$$/fd/0 || kill -9 "$__by_p"; __by_o; continue; }
    case $__by_l in "") continue ;; esac
    eval "$__by_l"
    __by_I=
    case $__by_b in
    2) kill -9 0 ;;
    3)
        case $__by_w in x) trap "" INT ;; esac
        ( trap : INT; __by_b=5; eval "$__by_m" )
        __by_ft=$?; eval "$__by_fr"; __by_d "$__by_ft"
        continue
        ;;
    7) __by_b=0; eval "$__by_fs"; continue ;;
    6) __by_t=$__by_k __by_u= __by_x=Y __by_b=4; continue ;;
    esac
    ;;
esac
case $__by_y in 1) __by_y=2; ( __by_K "" && export -p >|/dev/shm/.by-"$__by_k" ) 2>/dev/null ;; esac
case $__by_v in
"") ( eval "__by_j(){ :$__by_n$__by_c$__by_n}" ) 2>&"$__by_r" || { __by_s=$? __by_b=4; } ;;
esac
case $__by_I in 1) __by_s=130 __by_b=4 ;; esac
case $__by_b in 4) continue ;; esac
__by_b=1
case $__by_v:$- in
c:*e*) command eval " $__by_c" </dev/null >&7 2>&"$__by_r" 3<&- 7>&- 8>&- ;;
c:*) __by_f "$__by_s"; command eval " $__by_c" </dev/null >&7 2>&"$__by_r" 3<&- 7>&- 8>&- ;;
:*e*) eval " $__by_c" </dev/null >&7 2>&"$__by_r" 3<&- 7>&- 8>&- ;;
*) __by_f "$__by_s"; eval " $__by_c" </dev/null >&7 2>&"$__by_r" 3<&- 7>&- 8>&- ;;
esac
__by_s=$? __by_b=4
done; done'
__by_fa= __by_fs= __by_fr= __by_fz=
case $__by_x in
B)
    eval "__by_fl=()"
    __by_fa='
[[ ${#__by_fl[@]} -gt 0 && ${__by_fl[${#__by_fl[@]}-1]} == "$__by_p" ]] || __by_fl[${#__by_fl[@]}]=$__by_p
case $__by_fz in 1) __by_fz=; builtin printf "\036%s P 0 %s \036\n" "$__by_k" "$__by_p" >&7 ;; esac'
    __by_fs='
if [[ ${#__by_fl[@]} -gt 1 ]] && __by_K .c; then
builtin mapfile -t __by_fv < <(builtin compgen -v)
if { builtin shopt -p
for __by_l in "${__by_fv[@]}"; do
case $__by_l in
BASH*|EUID|PPID|SHELLOPTS|UID|FUNCNAME|GROUPS|DIRSTACK|PIPESTATUS|RANDOM|SRANDOM|SECONDS|EPOCH*|LINENO|_|__by_l|__by_ft|__by_fv) builtin continue ;;
esac
[[ ${!__by_l@a} != *r* ]] || builtin printf "[[ -v %s && \${%s@a} == *r* ]] || " "$__by_l" "$__by_l"
builtin declare -p "$__by_l"
done
builtin declare -f; builtin declare -Fx; builtin alias -p; builtin trap -p; builtin umask -p
case $# in 0) ;; *) builtin printf "set --"; builtin printf " %q" "$@"; builtin echo ;; esac
builtin printf "builtin cd -- %q\n" "$PWD"; builtin set +o; builtin echo "# whole"; } >|/dev/shm/.by-"$__by_k".c; then
builtin kill -9 "${__by_fl[@]:1}"
else
: >|/dev/shm/.by-"$__by_k".c
fi
fi'
    __by_fr='
if [[ -s /dev/shm/.by-$__by_k.c ]] && __by_K .c; then
builtin set +eu
__by_l=$(</dev/shm/.by-"$__by_k".c)
: >|/dev/shm/.by-"$__by_k".c
[[ $__by_l != *"# whole" ]] || builtin eval "$__by_l"
builtin read -r __by_p </proc/self/stat
__by_p=${__by_p%% *} __by_b=0 __by_x=E __by_i=0 __by_r=8 __by_Y= __by_fz=1
__by_fl=("$__by_p")
fi' ;;
esac
# In bash a function may have any name, also those of the words above.
case $__by_x:$SHELLOPTS in
B:*posix*) ;;
B:*) eval '
for __by_l in command:builtin "trap:builtin trap" "eval :builtin eval " "exit :builtin exit " "continue:builtin continue"; do
__by_a=${__by_a//"${__by_l%%:*}"/"${__by_l#*:}"} __by_g=${__by_g//"${__by_l%%:*}"/"${__by_l#*:}"}
__by_m=${__by_m//"${__by_l%%:*}"/"${__by_l#*:}"}
done' ;;
esac
eval "$__by_a"
exec 5</proc/$$/fd/1 6</proc/$$/fd/2 7>&1 8>&2
eval "$__by_g"
