/* Requests of bothyd that wait, and those of other sandboxes beside them. The cgroups are files of
 * a directory in the form of v2: a sandbox resists if its `cgroup.events` never says frozen. Answers
 * come here instead of to a connection. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/ops.h"
#include "warden/warden.h"

#include "../unit.h"

#define SLOTS    60
#define RESIST   50
#define NEIGHBOR 50
#define WAIT_NS  (20 * NS_PER_S)

static warden w;
static char dir[] = "/tmp/bothy-ops-XXXXXX";

/* ---- answers ---- */

typedef struct answer {
    bool came;
    int errnum;
} answer;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    answer of[1024]; /* by the request's number */
    unsigned n;
} answers = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void answered(job *j, int errnum)
{
    LOCK_SCOPE(&answers.lock);
    answers.of[j->request] = (answer){true, errnum};
    answers.n++;
    pthread_cond_broadcast(&answers.cond);
    free(j);
}

void job_answer(job *j, const void *a, size_t na, const void *b, size_t nb, int fd)
{
    (void)a, (void)na, (void)b, (void)nb, (void)fd;
    answered(j, 0);
}

void job_end(job *j, err *e)
{
    int errnum = e ? e->errnum : 0;

    err_free(e);
    answered(j, errnum);
}

int job_errnum(const err *e)
{
    return e->errnum;
}

void job_free(job *j)
{
    free(j);
}

bool conn_closed(const conn *c)
{
    (void)c;
    return false;
}

void conn_ref(conn *c)
{
    (void)c;
}

void conn_unref(conn *c)
{
    (void)c;
}

/* The errno of the answer to this request. */
static int wait_for(unsigned request)
{
    uint64_t until = now_real_ns() + WAIT_NS;
    struct timespec ts = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};

    LOCK_SCOPE(&answers.lock);
    while (!answers.of[request].came)
        assert_int_equal(pthread_cond_timedwait(&answers.cond, &answers.lock, &ts), 0);
    return answers.of[request].errnum;
}

static bool has_come(unsigned request)
{
    LOCK_SCOPE(&answers.lock);
    return answers.of[request].came;
}

/* ---- slots ---- */

static void write_file(uint32_t n, const char *name, const char *text)
{
    char path[96];

    snprintf(path, sizeof path, "%s/t/%u/%s", dir, n, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static bool is_frozen(uint32_t n)
{
    CLEANUP(buf_done) buf b = {0};
    char path[96];

    snprintf(path, sizeof path, "%s/t/%u/cgroup.freeze", dir, n);
    assert_ok(fs_read(AT_FDCWD, path, 16, &b));
    return b.p[0] == '1';
}

static void id_of_slot(uint32_t n, struct wp_id *ret)
{
    char id[SANDBOX_ID_LEN + 1];

    snprintf(id, sizeof id, "sandboxaaaaaaaaaa%03u", n);
    *ret = (struct wp_id){0};
    memcpy(ret->id, id, SANDBOX_ID_LEN);
}

static void add_slot(uint32_t n)
{
    char path[96];
    slot *s = xcalloc(1, sizeof *s);
    struct wp_id id;

    snprintf(path, sizeof path, "%s/t/%u", dir, n);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file(n, "cgroup.freeze", "0");
    write_file(n, "cgroup.events", n < RESIST ? "frozen 0\n" : "frozen 1\n");
    id_of_slot(n, &id);
    memcpy(s->id, id.id, SANDBOX_ID_LEN);
    s->n = n;
    s->state = SLOT_CLAIMED;
    s->refs = 1;
    s->dirfd = s->userns = s->conn = -1;
    s->pidfd = pidfd_open(getpid(), 0);
    w.slots[n] = s;
    map_put_str(&w.by_id, s->id, s);
}

static int setup(void **state)
{
    (void)state;
    char path[96];

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/t", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    w.cg = (cgroups){.v2 = true, .path = "/t", .io = -1, .cpuset = -1};
    for (int i = 0; i < CG_CONTROLLERS; i++)
        w.cg.of[i] = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.claims, NULL);
    pthread_cond_init(&w.refill, NULL);
    w.nslots = SLOTS;
    w.slots = xcalloc(SLOTS, sizeof *w.slots);
    for (uint32_t n = 0; n < SLOTS; n++)
        add_slot(n);
    ops_start(&w);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return fs_remove(AT_FDCWD, dir) ? -1 : 0;
}

static unsigned last;

/* Its number. */
static unsigned ask(uint32_t type, uint32_t n, const struct wp_limits *l)
{
    struct wp_limits_of body = {0};
    job *j = xcalloc(1, sizeof *j + sizeof body);

    id_of_slot(n, &body.sandbox);
    if (l)
        body.limits = *l;
    j->type = type;
    j->request = ++last;
    j->received_ns = now_mono_ns();
    j->fd = -1;
    j->n = sizeof body;
    memcpy(j->body, &body, sizeof body);
    ops_take(&w, j);
    return last;
}

/* ---- cases ---- */

static void sandboxes_that_resist_hold_up_no_pause_of_others(void **state)
{
    (void)state;
    unsigned first = last + 1;

    for (uint32_t n = 0; n < RESIST; n++)
        ask(WP_FREEZE, n, NULL);
    for (int i = 0; i < 20; i++)
        for (uint32_t n = NEIGHBOR; n < SLOTS; n++) {
            assert_int_equal(wait_for(ask(WP_FREEZE, n, NULL)), 0);
            assert_true(is_frozen(n));
            assert_int_equal(wait_for(ask(WP_THAW, n, NULL)), 0);
            assert_false(is_frozen(n));
        }
    unsigned over = 0;
    for (unsigned r = first; r < first + RESIST; r++)
        over += has_come(r);
    assert_true(over < RESIST); /* all of that while they resisted */
    for (unsigned r = first; r < first + RESIST; r++)
        assert_int_equal(wait_for(r), ETIMEDOUT);
    for (uint32_t n = 0; n < RESIST; n++)
        assert_false(is_frozen(n));
}

static void a_thaw_ends_a_freeze_under_way(void **state)
{
    (void)state;
    unsigned freeze = ask(WP_FREEZE, 7, NULL), thaw = ask(WP_THAW, 7, NULL);

    assert_int_equal(wait_for(thaw), 0);
    assert_false(is_frozen(7));
    assert_int_equal(wait_for(freeze), ETIMEDOUT);
    assert_false(is_frozen(7));
    assert_false(w.slots[7]->frozen);
    assert_false(w.slots[7]->freezing);
}

static void set_limiting(uint32_t n, bool limiting)
{
    LOCK_SCOPE(&w.lock);
    w.slots[n]->limiting = limiting;
}

/* Limits that take their time, of more sandboxes than there are workers. */
static void limits_that_wait_hold_up_nothing_else(void **state)
{
    (void)state;
    const struct wp_limits l = {.shm_mib = 0};
    unsigned asked[8];

    for (uint32_t n = 0; n < 8; n++) {
        set_limiting(n, true);
        asked[n] = ask(WP_LIMITS, n, &l);
    }
    assert_int_equal(wait_for(ask(WP_DESTROY, SLOTS + 1, NULL)), 0); /* there is none: at once */
    assert_int_equal(wait_for(ask(WP_SOCKET, SLOTS + 1, NULL)), ENOENT);
    assert_int_equal(wait_for(ask(WP_LIMITS, SLOTS + 1, &l)), ENOENT);
    for (uint32_t n = 0; n < 8; n++) {
        assert_false(has_come(asked[n]));
        set_limiting(n, false);
    }
    for (uint32_t n = 0; n < 8; n++)
        (void)wait_for(asked[n]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sandboxes_that_resist_hold_up_no_pause_of_others),
        cmocka_unit_test(a_thaw_ends_a_freeze_under_way),
        cmocka_unit_test(limits_that_wait_hold_up_nothing_else),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
