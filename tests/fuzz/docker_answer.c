/* What a container engine answers. The first byte chooses the parser: what is taken has its form
 * and lies within the ceilings; a stream of documents is the same however it is cut. */
#include "backend/docker_answer.h"

#include "fuzz.h"

static void id_holds(const char *id)
{
    MUST(strlen(id) == DOCKER_ID_LEN && strspn(id, "0123456789abcdefABCDEF") == DOCKER_ID_LEN);
}

static err *engine(const void *p, size_t n)
{
    docker_engine e = {0};
    err *failure = docker_parse_version(p, n, &e);

    MUST(failure || (e.api && *e.name));
    if (failure)
        return failure;
    return docker_parse_info(p, n, &e);
}

static err *container(const void *p, size_t n)
{
    docker_container c = {0};
    err *e = docker_parse_container(p, n, &c);

    if (!e)
        id_holds(c.id);
    MUST(strv_len(c.labels) <= DOCKER_WORDS_MAX && (!e || !c.labels));
    docker_container_done(&c);
    return e;
}

static err *list(const void *p, size_t n)
{
    docker_list l = {0};
    err *e = docker_parse_list(p, n, &l);

    MUST(l.n <= DOCKER_LIST_MAX);
    for (size_t i = 0; i < l.n; i++)
        id_holds(l.c[i].id);
    docker_list_done(&l);
    return e;
}

static err *made(const void *p, size_t n)
{
    char id[DOCKER_ID_LEN + 1];
    err *e = docker_parse_made(p, n, id);

    if (!e)
        id_holds(id);
    return e;
}

static err *numbers(const void *p, size_t n)
{
    docker_stats s;
    int code;
    err *e = docker_parse_stats(p, n, &s);

    err_free(docker_parse_wait(p, n, &code));
    MUST(e || !(s.memory_limit >> 62));
    return e;
}

static err *image(const void *p, size_t n)
{
    docker_image i = {0};
    err *e = docker_parse_image(p, n, &i);

    if (!e) {
        id_holds(i.digest);
        MUST(i.user && i.cwd && strv_len(i.env) <= DOCKER_WORDS_MAX);
    }
    docker_image_done(&i);
    return e;
}

static err *volumes(const void *p, size_t n)
{
    char **names = NULL;
    err *e = docker_parse_volumes(p, n, &names);

    MUST(strv_len(names) <= DOCKER_LIST_MAX && (!e || !names));
    for (char **name = names; name && *name; name++)
        MUST(**name && !strpbrk(*name, "/?#% ")); /* it becomes part of a path */
    strv_freep(&names);
    return e;
}

static err *images(const void *p, size_t n)
{
    docker_images l = {0};
    err *e = docker_parse_images(p, n, &l);

    for (size_t i = 0; i < l.n; i++)
        id_holds(l.i[i].digest);
    docker_images_done(&l);
    return e;
}

static err *message(const void *p, size_t n)
{
    char text[DOCKER_TEXT_MAX];
    const char *told = docker_parse_message(p, n, text);

    MUST(!told || (told == text && strlen(text) < sizeof text));
    return NULL;
}

/* ---- streams ---- */

static err *one(void *arg, const char *p, size_t n)
{
    docker_event e = {0};
    docker_progress r;

    MUST(n && n <= DOCKER_LINE_MAX && !memchr(p, '\n', n));
    buf_append(arg, p, n);
    buf_char(arg, '\n');
    err_free(docker_parse_progress(p, n, &r));
    err *failure = docker_parse_event(p, n, &e);
    if (!failure && e.action != DOCKER_OTHER)
        id_holds(e.id);
    docker_event_done(&e);
    return failure;
}

static err *feed(const uint8_t *p, size_t n, size_t step, buf *out)
{
    docker_lines l = {0};
    err *e = NULL;

    for (size_t at = 0; at < n && !e; at += step)
        e = docker_lines_feed(&l, p + at, n - at < step ? n - at : step, one, out);
    if (!e)
        e = docker_lines_end(&l, one, out);
    docker_lines_done(&l);
    return e;
}

static err *stream(const void *p, size_t n)
{
    buf whole = {0}, cut = {0};
    err *e = feed(p, n, n ? n : 1, &whole), *other = feed(p, n, 3, &cut);

    MUST(!e == !other && whole.len == cut.len);
    MUST(!whole.len || !memcmp(whole.p, cut.p, whole.len));
    err_free(other);
    buf_done(&whole);
    buf_done(&cut);
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static err *(*const PARSER[])(const void *, size_t) = {
        engine, container, list, made, numbers, image, images, message, stream, volumes};
    fuzz_in in = {data, size};
    size_t n, which = fuzz_byte(&in) - (size_t)'a', have;
    void *p = fuzz_bytes(&in, in.n, &have);

    n = sizeof PARSER / sizeof *PARSER;
    err *e = PARSER[which % n](p, have);
    MUST(!e || (e->message && *e->message));
    err_free(e);
    free(p);
    return 0;
}
