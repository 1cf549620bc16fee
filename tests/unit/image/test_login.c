/* The files of logins, as a kill or a damage leaves them. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "image/image.h"

#include "../unit.h"

#define HEAD  "bothy-logins 1\n"
#define NEWER "bothy-logins 9\n"
#define ONE   "one.example 1 Ym9i Ym9iOng=\n"
#define TWO   "two.example 2 Ym9i Ym9iOnk=\n"

typedef struct place {
    char dir[64];
    int fd, staging, conf;
    char *staging_path, *conf_path;
    backend backend;
    store *store;
    image_store *images;
} place;

static void put(place *p, const char *name, const char *text)
{
    assert_ok(fs_write(p->conf, name, text, strlen(text), 0600, false));
}

static void open_images(place *p)
{
    assert_ok(image_store_new(&(image_options){.staging_dir = p->staging,
                                               .staging_path = p->staging_path,
                                               .skopeo = "skopeo",
                                               .conf_dir = p->conf,
                                               .conf_path = p->conf_path,
                                               .backend = &p->backend,
                                               .store = p->store,
                                               .pull_timeout_ms = 1000},
                              &p->images));
}

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);

    strcpy(p->dir, "/tmp/bothy-login.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(fs_dir(p->fd, "staging", 0700, &p->staging));
    assert_ok(fs_dir(p->fd, "registries", 0700, &p->conf));
    p->staging_path = str_printf("%s/staging", p->dir);
    p->conf_path = str_printf("%s/registries", p->dir);
    p->backend = (backend){.caps = {.name = "none", .images = CAP_ABSENT}};
    assert_ok(store_open(p->fd, "store.db", "normal", &p->store));
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;

    image_store_free(p->images);
    store_close(p->store);
    close(p->conf);
    close(p->staging);
    close(p->fd);
    err_free(fs_remove(AT_FDCWD, p->dir));
    free(p->staging_path);
    free(p->conf_path);
    free(p);
    return 0;
}

static size_t count_logins(place *p)
{
    login *list = NULL;
    size_t n = 0;

    assert_ok(image_logins(p->images, NULL, &list, &n));
    for (size_t i = 0; i < n; i++)
        login_done(&list[i]);
    free(list);
    return n;
}

static void a_login_half_written_goes_at_the_start(void **state)
{
    place *p = *state;

    put(p, ".logins-shared.k3k3k3k3", HEAD ONE);
    put(p, ".logins-00112233445566778899aabbccddeeff.a1a1a1a1", HEAD);
    put(p, "logins-shared", HEAD ONE TWO);
    open_images(p);
    assert_int_equal(faccessat(p->conf, ".logins-shared.k3k3k3k3", F_OK, 0), -1);
    assert_int_equal(
        faccessat(p->conf, ".logins-00112233445566778899aabbccddeeff.a1a1a1a1", F_OK, 0), -1);
    assert_int_equal(count_logins(p), 2);
}

static void logout_takes_one_line(void **state)
{
    place *p = *state;
    CLEANUP(buf_done) buf text = {0};

    put(p, "logins-shared", HEAD ONE TWO);
    open_images(p);
    assert_ok(image_logout(p->images, NULL, "one.example"));
    assert_err(image_logout(p->images, NULL, "one.example"), ERR_NOT_FOUND);
    assert_ok(fs_read(p->conf, "logins-shared", 4096, &text));
    assert_string_equal(buf_cstr(&text), HEAD TWO);
}

static void a_damaged_file_is_not_written_over(void **state)
{
    static const char *const DAMAGED[] = {
        HEAD ONE "what is this\n" TWO,
        HEAD ONE "three.example 3 Ym9i",
        HEAD "\n" ONE,
        HEAD ONE "\n",
        HEAD ONE "three.example 3 Ym9i a\",\"b\n", /* it would go into skopeo's file as it is */
        HEAD ONE "three.example 3 Ym9 Ym9iOng=\n",
        HEAD ONE "three.example x Ym9i Ym9iOng=\n",
        HEAD ONE "Three 3 Ym9i Ym9iOng=\n",
        NEWER ONE,
        ONE,
    };
    place *p = *state;

    open_images(p);
    for (size_t i = 0; i < ARRAY_LEN(DAMAGED); i++) {
        CLEANUP(buf_done) buf text = {0};
        login *list = NULL;
        size_t n = 0;
        put(p, "logins-shared", DAMAGED[i]);
        CLEANUP(err_freep) err *e = image_logout(p->images, NULL, "one.example");
        assert_non_null(e);
        assert_int_equal(e->code, ERR_INTERNAL);
        assert_non_null(strstr(e->message, "logins-shared"));
        assert_non_null(strstr(err_remedy_of(e), "log in again"));
        assert_err(image_logins(p->images, NULL, &list, &n), ERR_INTERNAL);
        assert_ok(fs_read(p->conf, "logins-shared", 4096, &text));
        assert_string_equal(buf_cstr(&text), DAMAGED[i]);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_login_half_written_goes_at_the_start),
        TEST(logout_takes_one_line),
        TEST(a_damaged_file_is_not_written_over),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
