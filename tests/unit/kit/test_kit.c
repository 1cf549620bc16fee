/* bothy-kit itself, as a program: the freestanding build and the one under the sanitizers
 * (argv[1]). Requests and answers go through wire/kit.c. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/str.h"
#include "wire/kit.h"

#include "../unit.h"

extern char **environ;
static const char *program;
static char dir[] = "/tmp/bothy-kit.XXXXXX";

typedef struct answer {
    buf bytes;
    kit_record r[64];
    size_t n;
} answer;

static pid_t launch(const kit_request *rq, int in, int out)
{
    char numbers[KIT_NUMBERS];
    const char *argv[KIT_ARGC + 1];
    posix_spawn_file_actions_t fa;
    pid_t pid;

    kit_request_write(rq, numbers, argv);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in, 0);
    posix_spawn_file_actions_adddup2(&fa, out, 1);
    assert_int_equal(posix_spawn(&pid, program, &fa, NULL, (char **)argv, environ), 0);
    posix_spawn_file_actions_destroy(&fa);
    return pid;
}

/* Records of what was printed, in order and well formed. */
static void take(answer *a)
{
    kit_order order = {0};
    size_t at = 0, used;

    a->n = 0;
    while (at < a->bytes.len && a->n < ARRAY_LEN(a->r)) {
        assert_int_equal(kit_decode(a->bytes.p + at, a->bytes.len - at, &a->r[a->n], &used),
                         KIT_OK);
        assert_true(kit_order_check(&order, &a->r[a->n++]));
        at += used;
    }
}

static void run(const kit_request *rq, const buf *input, answer *a)
{
    int in[2], out[2], status;
    char chunk[65536];
    ssize_t n;

    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    pid_t pid = launch(rq, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    if (input && input->len) /* less than a pipe holds */
        assert_true(write(in[1], input->p, input->len) == (ssize_t)input->len || errno == EPIPE);
    close(in[1]);
    buf_clear(&a->bytes);
    while ((n = read(out[0], chunk, sizeof chunk)) > 0)
        buf_append(&a->bytes, chunk, (size_t)n);
    close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    take(a);
    assert_int_equal(a->r[a->n - 1].type, KIT_END);
}

static kit_request ask(enum kit_verb verb, const char *path)
{
    return (kit_request){.verb = verb,
                         .mode = KIT_MODE_NONE,
                         .depth = 9,
                         .length = UINT64_MAX,
                         .max = INT64_MAX,
                         .path = path};
}

/* errno of a fatal error, 0 for none. */
static int failure(const answer *a)
{
    const kit_record *r = a->n > 1 ? &a->r[a->n - 2] : NULL;

    return r && r->type == KIT_ERROR && r->error.flags & KIT_E_FATAL ? r->error.errnum : 0;
}

static void put(buf *b, const kit_record *r)
{
    buf_reserve(b, KIT_RECORD_MAX);
    b->len += kit_encode(r, b->p + b->len);
}

static void content(buf *b, const char *text, bool end)
{
    kit_record entry = {.type = KIT_ENTRY, .bytes = "", .entry.flags = KIT_E_UNSIZED};
    kit_record data = {.type = KIT_DATA, .bytes = text, .bytes_len = strlen(text)};

    put(b, &entry);
    put(b, &data);
    if (end)
        put(b, &(kit_record){.type = KIT_END});
}

static void assert_names(const answer *a, const char *want)
{
    CLEANUP(buf_done) buf got = {0};

    for (size_t i = 0; i < a->n; i++)
        if (a->r[i].type == KIT_ENTRY)
            buf_printf(&got, "%.*s ", (int)a->r[i].name_len, a->r[i].name);
    assert_string_equal(buf_cstr(&got), want);
}

static void make(const char *path, const char *text)
{
    CLEANUP(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static int enter(void **state)
{
    (void)state;
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    return mkdtemp(dir) && !chdir(dir) ? 0 : -1;
}

static int leave(void **state)
{
    CLEANUP(closep) int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)state;
    if (chdir("/"))
        return -1;
    err_free(fs_remove(tmp, dir + 5));
    return 0;
}

/* ---- tests ---- */

static void a_write_is_whole_or_not_at_all(void **state)
{
    answer a = {0};
    buf in = {0};
    kit_request w = ask(KIT_WRITE, "sub/file");

    (void)state;
    content(&in, "one", true);
    run(&w, &in, &a);
    assert_int_equal(failure(&a), ENOENT);
    w.flags = KIT_F_PARENTS;
    w.mode = 0600;
    run(&w, &in, &a);
    assert_int_equal(failure(&a), 0);
    assert_int_equal(a.r[0].entry.size, 3);
    assert_int_equal(a.r[0].entry.mode, S_IFREG | 0600);
    buf_clear(&in);
    content(&in, "another", false);
    run(&w, &in, &a);
    assert_int_equal(failure(&a), EPIPE);
    kit_request list = ask(KIT_LIST, ".");
    run(&list, NULL, &a);
    assert_names(&a, "sub sub/file ");
    assert_int_equal(a.r[1].entry.size, 3);
    buf_clear(&in);
    buf_append(&in, "no records", 10);
    run(&w, &in, &a);
    assert_int_equal(failure(&a), EPROTO);
    buf_done(&in);
    buf_done(&a.bytes);
}

static void only_regular_files_are_opened(void **state)
{
    static const char *const PATHS[] = {"fifo", "/dev/zero", "to-fifo", "/dev/tty"};
    answer a = {0};

    (void)state;
    assert_int_equal(mkfifo("fifo", 0600) | symlink("fifo", "to-fifo"), 0);
    for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
        kit_request r = ask(KIT_READ, PATHS[i]), w = ask(KIT_WRITE, PATHS[i]);
        run(&r, NULL, &a);
        assert_int_not_equal(failure(&a), 0);
        run(&w, NULL, &a);
        assert_int_not_equal(failure(&a), 0);
    }
    kit_request r = ask(KIT_READ, ".");
    run(&r, NULL, &a);
    assert_int_equal(failure(&a), EISDIR);
    buf_done(&a.bytes);
}

static void a_range_and_a_hole_are_read(void **state)
{
    answer a = {0};
    kit_request r = ask(KIT_READ, "f");
    CLEANUP(closep) int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_int_equal(pwrite(fd, "abc", 3, 0) + pwrite(fd, "xyz", 3, 1 << 20), 6);
    run(&r, NULL, &a);
    assert_int_equal(a.r[0].entry.size, (1 << 20) + 3);
    assert_int_equal(a.r[a.n - 2].offset + a.r[a.n - 2].bytes_len, (1 << 20) + 3);
    r.offset = 1;
    r.length = 1;
    run(&r, NULL, &a);
    assert_int_equal(a.n, 3);
    assert_memory_equal(a.r[1].bytes, "b", 1);
    r.flags = KIT_F_SUFFIX;
    r.length = 2;
    run(&r, NULL, &a);
    assert_memory_equal(a.r[1].bytes, "yz", 2);
    r = ask(KIT_READ, "/proc/self/stat");
    run(&r, NULL, &a);
    assert_true(a.r[0].entry.flags & KIT_E_UNSIZED && a.r[1].bytes_len);
    buf_done(&a.bytes);
}

static void a_list_is_sorted_and_goes_on_after_a_name(void **state)
{
    static const char *const ALL[] = {"a", "a/b", "a/b/1", "a/b/2", "a/c", "a.x", "b"};
    answer a = {0};

    (void)state;
    assert_int_equal(mkdir("a", 0755) | mkdir("a/b", 0755), 0);
    make("a/b/2", "");
    make("a/b/1", "");
    make("a/c", "");
    make("a.x", "");
    make("b", "");
    kit_request list = ask(KIT_LIST, ".");
    run(&list, NULL, &a);
    assert_names(&a, "a a/b a/b/1 a/b/2 a/c a.x b ");
    for (size_t i = 0; i < ARRAY_LEN(ALL); i++) {
        CLEANUP(buf_done) buf want = {0};
        for (size_t k = i + 1; k < ARRAY_LEN(ALL); k++)
            buf_printf(&want, "%s ", ALL[k]);
        list.to = ALL[i];
        run(&list, NULL, &a);
        assert_names(&a, want.len ? buf_cstr(&want) : "");
    }
    list.to = "";
    list.max = 2;
    run(&list, NULL, &a);
    assert_names(&a, "a a/b ");
    assert_true(a.r[a.n - 1].end.flags & KIT_E_MORE);
    list.max = INT64_MAX;
    list.depth = 1;
    run(&list, NULL, &a);
    assert_names(&a, "a a.x b ");
    buf_done(&a.bytes);
}

static void links_are_not_walked(void **state)
{
    answer a = {0};

    (void)state;
    assert_int_equal(mkdir("t", 0755) | mkdir("keep", 0755) | symlink("../keep", "t/out") |
                         symlink("/", "t/root"),
                     0);
    make("keep/f", "");
    kit_request list = ask(KIT_LIST, "t"), rm = ask(KIT_REMOVE, "t");
    run(&list, NULL, &a);
    assert_names(&a, "out root ");
    run(&rm, NULL, &a);
    assert_int_equal(failure(&a), ENOTEMPTY);
    rm.flags = KIT_F_RECURSIVE;
    run(&rm, NULL, &a);
    assert_int_equal(failure(&a), 0);
    assert_int_equal(a.r[0].end.entries, 3);
    assert_int_equal(access("keep/f", F_OK), 0);
    rm.path = "/";
    run(&rm, NULL, &a);
    assert_int_equal(failure(&a), EBUSY);
    buf_done(&a.bytes);
}

static void patterns_and_texts_are_found(void **state)
{
    static const struct {
        const char *glob, *text, *want;
        size_t matches;
    } CASES[] = {
        {"*.c", "", "src/a.c ", 0},
        {"s*/?.c", "", "src/a.c ", 0},
        {"**/x/b", "", "src/x/b ", 0},
        {"[!a-m]*", "", "src src/x ", 0},
        {"*.c", "two", "src/a.c ", 2},
        {"", "two", "src/a.c src/x/b ", 3},
        {"\\*", "", "", 0},
        {"", "one\ntwo", "", 0},
        {"****************a****b", "", "", 0},
    };
    answer a = {0};

    (void)state;
    assert_int_equal(mkdir("src", 0755) | mkdir("src/x", 0755), 0);
    make("src/a.c", "one\ntwo two\n two\nlast");
    make("src/x/b", "two");
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        kit_request find = ask(KIT_SEARCH, ".");
        size_t matches = 0;
        find.to = CASES[i].glob;
        find.text = CASES[i].text;
        run(&find, NULL, &a);
        assert_names(&a, CASES[i].want);
        for (size_t k = 0; k < a.n; k++)
            matches += a.r[k].type == KIT_MATCH;
        assert_int_equal(matches, CASES[i].matches);
    }
    buf_done(&a.bytes);
}

static void a_match_is_found_across_windows(void **state)
{
    answer a = {0};
    kit_request find = ask(KIT_SEARCH, ".");
    CLEANUP(buf_done) buf long_line = {0};

    (void)state;
    for (size_t i = 0; i < 262140; i++) /* the text lies over the end of the first window */
        buf_char(&long_line, 'x');
    buf_str(&long_line, "needle\nnext needle\n");
    make("f", buf_cstr(&long_line));
    find.text = "needle";
    run(&find, NULL, &a);
    assert_int_equal(a.n, 4);
    assert_int_equal(a.r[1].match.offset, 262140);
    assert_int_equal(a.r[1].match.line, 1);
    assert_int_equal(a.r[2].match.line, 2);
    assert_int_equal(a.r[2].match.offset, 262140 + 7 + 5);
    buf_done(&a.bytes);
}

/* Until so many events have come, or 10 s have passed. */
static void watch_until(int fd, answer *a, size_t events)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char chunk[4096];

    while (a->n < events && poll(&p, 1, 10000) > 0) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        assert_true(n > 0);
        buf_append(&a->bytes, chunk, (size_t)n);
        take(a);
    }
    assert_true(a->n >= events);
}

static bool saw(const answer *a, enum kit_change what, const char *name, const char *to)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->r[i].type == KIT_EVENT && a->r[i].event.change == what &&
            a->r[i].name_len == strlen(name) && !memcmp(a->r[i].name, name, a->r[i].name_len) &&
            a->r[i].bytes_len == strlen(to) && !memcmp(a->r[i].bytes, to, a->r[i].bytes_len))
            return true;
    return false;
}

static void a_watch_follows_renamed_directories(void **state)
{
    answer a = {0};
    kit_request w = ask(KIT_WATCH, ".");
    int out[2], status;

    (void)state;
    assert_int_equal(mkdir("d", 0755) | mkdir("d/e", 0755) | pipe2(out, O_CLOEXEC), 0);
    w.flags = KIT_F_RECURSIVE;
    pid_t pid = launch(&w, STDIN_FILENO, out[1]);
    close(out[1]);
    watch_until(out[0], &a, 1);
    assert_int_equal(a.r[0].event.change, KIT_READY);
    assert_int_equal(rename("d", "r"), 0);
    watch_until(out[0], &a, 2);
    assert_true(saw(&a, KIT_MOVED, "d", "r"));
    make("r/e/f", "");
    watch_until(out[0], &a, 3);
    assert_true(saw(&a, KIT_CREATED, "r/e/f", ""));
    CLEANUP(freep) char *outside = str_printf("%s.out", dir);
    assert_int_equal(rename("r", outside), 0);
    watch_until(out[0], &a, 4);
    assert_true(saw(&a, KIT_MOVED, "r", ""));
    CLEANUP(freep) char *late = str_printf("%s/e/late", outside);
    make(late, "");
    make("mark", "");
    while (!saw(&a, KIT_CREATED, "mark", ""))
        watch_until(out[0], &a, a.n + 1);
    assert_false(saw(&a, KIT_CREATED, "r/e/late", ""));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(out[0]);
    CLEANUP(closep) int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    err_free(fs_remove(tmp, outside + 5));
    buf_done(&a.bytes);
}

/* The n-th record of a type, from 0. */
static const kit_record *nth(const answer *a, enum kit_type type, size_t n)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->r[i].type == type && !n--)
            return &a->r[i];
    fail_msg("no such record");
    return NULL;
}

static void assert_text(const char *p, size_t n, const char *want)
{
    assert_int_equal(n, strlen(want));
    assert_memory_equal(p, want, n);
}

static void paths_of_people_begin_at_home(void **state)
{
    const struct passwd *pw = getpwuid(geteuid());
    answer a = {0};
    CLEANUP(freep) char *below = str_printf("%s/no/such", pw->pw_dir);
    CLEANUP(freep) char *deep = str_printf("%s/deep/file", dir);
    const struct {
        const char *given, *want;
    } CASES[] = {
        {"~", pw->pw_dir},    {"~/no/./such", below}, {"no//x/../such/", below},
        {"/etc//", "/etc//"}, {deep, deep},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        kit_request rq = ask(KIT_STAT, CASES[i].given);
        rq.flags = KIT_F_HOME;
        run(&rq, NULL, &a);
        assert_int_equal(a.r[0].type, KIT_AT);
        assert_text(a.r[0].bytes, a.r[0].bytes_len, CASES[i].want);
    }
    kit_request other = ask(KIT_STAT, "~root/x"), move = ask(KIT_MOVE, "/nowhere");
    other.flags = move.flags = KIT_F_HOME;
    move.to = "no/such";
    run(&other, NULL, &a);
    assert_int_equal(failure(&a), EINVAL);
    run(&move, NULL, &a);
    assert_text(a.r[0].bytes, a.r[0].bytes_len, below);
    assert_int_equal(failure(&a), ENOENT);
    buf_done(&a.bytes);
}

static void a_person_is_told_whose_it_is_and_where_links_lead(void **state)
{
    const struct passwd *pw = getpwuid(geteuid());
    answer a = {0};
    CLEANUP(freep) char *target = str_printf("%s/t/file", dir);
    kit_request rq = ask(KIT_LIST, "t");

    (void)state;
    assert_int_equal(mkdir("t", 0755) | symlink("file", "t/l1") | symlink("l1", "t/l2") |
                         symlink("gone", "t/l3"),
                     0);
    make("t/file", "x");
    assert_int_equal(chmod("t/file", 0640), 0);
    bool has_xattrs = !setxattr("t/file", "user.e2b.k", "v", 1, 0);
    rq.flags = KIT_F_DETAIL;
    run(&rq, NULL, &a);
    assert_names(&a, "file l1 l2 l3 ");
    for (size_t i = 0; i < 4; i++) {
        const kit_record *d = nth(&a, KIT_DETAIL, i);
        assert_text(d->name, d->name_len, pw->pw_name);
        assert_true(d->group_len);
        assert_text(d->bytes, d->bytes_len, i == 1 || i == 2 ? target : "");
        assert_int_equal(d->detail.mode, i == 1 || i == 2 ? (S_IFREG | 0640) : 0);
    }
    if (has_xattrs)
        assert_text(nth(&a, KIT_XATTR, 0)->name, nth(&a, KIT_XATTR, 0)->name_len, "user.e2b.k");
    buf_done(&a.bytes);
}

static void put_file(buf *b, const char *path, const char *text)
{
    kit_record r = {.type = KIT_ENTRY, .bytes = path, .bytes_len = strlen(path)};

    r.entry.flags = KIT_E_UNSIZED;
    put(b, &r);
    put(b, &(kit_record){.type = KIT_XATTR,
                         .name = "user.e2b.k",
                         .name_len = 10,
                         .bytes = text,
                         .bytes_len = strlen(text)});
    if (*text)
        put(b, &(kit_record){.type = KIT_DATA, .bytes = text, .bytes_len = strlen(text)});
}

static void several_files_are_written_in_one_run(void **state)
{
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(freep) char *one = str_printf("%s/many/a/1", dir);
    CLEANUP(freep) char *two = str_printf("%s/many/2", dir);
    CLEANUP(freep) char *bad = str_printf("%s/many/a", dir);
    answer a = {0};
    kit_request rq = ask(KIT_WRITE, "-");
    struct stat st;

    (void)state;
    rq.flags = KIT_F_MANY | KIT_F_PARENTS | KIT_F_DETAIL | KIT_F_HOME;
    put_file(&in, one, "first");
    put_file(&in, two, "");
    put(&in, &(kit_record){.type = KIT_END});
    run(&rq, &in, &a);
    assert_int_equal(failure(&a), 0);
    assert_text(nth(&a, KIT_AT, 1)->bytes, nth(&a, KIT_AT, 1)->bytes_len, two);
    assert_int_equal(nth(&a, KIT_ENTRY, 0)->entry.size, 5);
    assert_int_equal(nth(&a, KIT_ENTRY, 1)->entry.size, 0);
    assert_int_equal(stat(one, &st), 0);
    /* The first one stays when the second fails; what is not ended is not there. */
    buf_clear(&in);
    put_file(&in, two, "kept");
    put_file(&in, bad, "no");
    put(&in, &(kit_record){.type = KIT_END});
    run(&rq, &in, &a);
    assert_int_equal(failure(&a), EISDIR);
    assert_text(nth(&a, KIT_AT, 1)->bytes, nth(&a, KIT_AT, 1)->bytes_len, bad);
    assert_int_equal(stat(two, &st) | (int)st.st_size, 4);
    buf_clear(&in);
    put_file(&in, two, "unfinished");
    run(&rq, &in, &a);
    assert_int_equal(failure(&a), EPIPE);
    assert_int_equal(stat(two, &st) | (int)st.st_size, 4);
    kit_request list = ask(KIT_LIST, "many");
    run(&list, NULL, &a);
    assert_names(&a, "2 a a/1 ");
    buf_done(&a.bytes);
}

/* An ENTRY comes before what it is told for; a name that is written says whether it was there. */
/* Needs root, which unit tests may not have: then it is refused, and nothing is made. */
static void missing_directories_are_made_for_a_user_and_given(void **state)
{
    CLEANUP(buf_done) buf in = {0};
    CLEANUP(freep) char *path = str_printf("%s/box/new/f", dir);
    CLEANUP(freep) char *over = str_printf("%s/way/made/f", dir);
    bool root = geteuid() == 0;
    answer a = {0};
    kit_request rq = ask(KIT_WRITE, path);
    struct stat st;

    (void)state;
    assert_int_equal(chmod(dir, 0755) | mkdir("box", 0755) | symlink("box", "way"), 0);
    content(&in, "x", true);
    rq.flags = KIT_F_PARENTS | KIT_F_FOR;
    rq.to = "nobody-of-this-name";
    run(&rq, &in, &a);
    assert_int_equal(failure(&a), ENOKEY);
    rq.to = "12345:12346";
    run(&rq, &in, &a);
    assert_int_equal(failure(&a), root ? 0 : EPERM);
    assert_int_equal(stat("box/new", &st), root ? 0 : -1);
    assert_true(!root || (st.st_uid == 12345 && st.st_gid == 12346));
    assert_true(!root || (!stat(path, &st) && st.st_uid == 12345));
    rq.path = over;
    run(&rq, &in, &a);
    assert_int_equal(failure(&a), root ? EACCES : EPERM);
    assert_int_equal(stat("box/made", &st), -1);
    buf_done(&a.bytes);
}

static void a_watch_tells_what_has_changed(void **state)
{
    answer a = {0};
    CLEANUP(buf_done) buf in = {0};
    kit_request w = ask(KIT_WATCH, "."), file = ask(KIT_WRITE, "made");
    int out[2], status;

    (void)state;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    make("plain", "x");
    w.flags = KIT_F_DETAIL | KIT_F_DIRECTORY;
    kit_request none = ask(KIT_WATCH, "plain");
    none.flags = w.flags;
    run(&none, NULL, &a);
    assert_int_equal(failure(&a), ENOTDIR);
    buf_clear(&a.bytes);
    a.n = 0;
    pid_t pid = launch(&w, STDIN_FILENO, out[1]);
    close(out[1]);
    watch_until(out[0], &a, 1);
    content(&in, "new", true);
    for (int i = 0; i < 2; i++) {
        answer written = {0};
        run(&file, &in, &written);
        buf_done(&written.bytes);
    }
    size_t moved = 0;
    for (size_t seen = 0; moved < 2; seen++) {
        watch_until(out[0], &a, seen + 1);
        const kit_record *r = &a.r[seen];
        if (r->type != KIT_EVENT || r->event.change != KIT_MOVED)
            continue;
        assert_text(r->bytes, r->bytes_len, "made");
        assert_memory_equal(r->name, KIT_TEMP, strlen(KIT_TEMP));
        assert_int_equal(r->name[strlen(KIT_TEMP)] == KIT_TEMP_FRESH, moved == 0);
        assert_int_equal(r->name_len, strlen(KIT_TEMP) + KIT_TEMP_HEX + (moved == 0));
        size_t back = seen;
        while (back && a.r[back].type != KIT_ENTRY)
            back--;
        assert_text(a.r[back].name, a.r[back].name_len, "made");
        moved++;
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(out[0]);
    buf_done(&a.bytes);
}

/* Runs it call by call; `between` is called at each. */
static void run_traced(const kit_request *rq, void (*between)(void))
{
    char numbers[KIT_NUMBERS];
    const char *argv[KIT_ARGC + 1];
    int status = 0;
    pid_t pid = fork();

    if (!pid) {
        kit_request_write(rq, numbers, argv);
        int out = open("/dev/null", O_WRONLY);
        if (dup2(out, 1) < 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(9);
        execv(program, (char **)argv);
        _exit(9);
    }
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        between();
        ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 9);
}

static void swap_for_link(void)
{
    struct stat st;

    if (!lstat("new", &st) && S_ISDIR(st.st_mode) && !rename("new", "old"))
        assert_int_equal(symlink("victim", "new"), 0);
}

/* Whoever owns the directory above is not who makes this one: that may be root. */
static void a_link_in_a_new_directorys_place_gets_no_mode(void **state)
{
    kit_request rq = ask(KIT_MKDIR, "new");
    struct stat st;

    (void)state;
    rq.mode = 0777;
    assert_int_equal(mkdir("victim", 0700), 0);
    run_traced(&rq, swap_for_link);
    assert_int_equal(lstat("old", &st), 0);
    assert_int_equal(stat("victim", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void swap_for_another(void)
{
    struct stat st;

    if (lstat("box/old", &st) && !lstat("box/new", &st) && !rename("box/new", "box/old"))
        assert_int_equal(mkdir("box/new", 0700), 0);
}

/* Needs root, as above. */
static void a_directory_is_born_as_its_users_and_no_other_is_given(void **state)
{
    CLEANUP(freep) char *path = str_printf("%s/box/new/f", dir);
    kit_request rq = ask(KIT_WRITE, path);
    struct stat st;

    (void)state;
    if (geteuid())
        skip();
    assert_int_equal(chmod(dir, 0755) | mkdir("box", 0755), 0);
    rq.flags = KIT_F_PARENTS | KIT_F_FOR;
    rq.to = "12345:12346";
    run_traced(&rq, swap_for_another);
    assert_int_equal(stat("box/old", &st), 0);
    assert_true(st.st_uid == 12345 && st.st_gid == 12346);
    assert_int_equal(stat("box/new", &st), 0);
    assert_true(st.st_uid == 0 && st.st_gid == 0);
}

static void a_directory_that_is_there_may_be_kept(void **state)
{
    CLEANUP(buf_done) buf in = {0};
    answer a = {0};
    kit_request rq = ask(KIT_UNPACK, ".");
    kit_record old = {.type = KIT_ENTRY, .name = "old", .name_len = 3, .bytes = ""}, new = old;
    struct stat st;

    (void)state;
    assert_int_equal(mkdir("old", 0700), 0);
    old.entry.mode = new.entry.mode = S_IFDIR | 0711;
    new.name = "new";
    put(&in, &old);
    put(&in, &new);
    put(&in, &(kit_record){.type = KIT_END});
    rq.flags = KIT_F_KEEP;
    run(&rq, &in, &a);
    assert_int_equal(failure(&a), 0);
    assert_int_equal(stat("old", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat("new", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0711);
    rq.flags = 0;
    run(&rq, &in, &a);
    assert_int_equal(stat("old", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0711);
    buf_done(&a.bytes);
}

static void a_request_of_another_version_is_refused(void **state)
{
    char *argv[] = {"bothy-kit", "2", "stat", "0,0,0,0,0,0", "/", "", "", NULL};
    pid_t pid;
    int status;

    (void)state;
    assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    waitpid(pid, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 2);
}

#define KIT_TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(a_write_is_whole_or_not_at_all),
        KIT_TEST(only_regular_files_are_opened),
        KIT_TEST(a_range_and_a_hole_are_read),
        KIT_TEST(a_list_is_sorted_and_goes_on_after_a_name),
        KIT_TEST(links_are_not_walked),
        KIT_TEST(patterns_and_texts_are_found),
        KIT_TEST(a_match_is_found_across_windows),
        KIT_TEST(a_watch_follows_renamed_directories),
        KIT_TEST(paths_of_people_begin_at_home),
        KIT_TEST(a_person_is_told_whose_it_is_and_where_links_lead),
        KIT_TEST(several_files_are_written_in_one_run),
        KIT_TEST(missing_directories_are_made_for_a_user_and_given),
        KIT_TEST(a_watch_tells_what_has_changed),
        KIT_TEST(a_link_in_a_new_directorys_place_gets_no_mode),
        KIT_TEST(a_directory_is_born_as_its_users_and_no_other_is_given),
        KIT_TEST(a_directory_that_is_there_may_be_kept),
        KIT_TEST(a_request_of_another_version_is_refused),
    };

    if (argc < 2)
        return 2;
    program = realpath(argv[1], NULL); /* the cases are in directories of their own */
    signal(SIGPIPE, SIG_IGN);          /* a kit that fails at once reads nothing */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
