/* Files over REST: a shell's answers where there is no kit, ranges of callers, and a kit's records
 * as JSON. What a shell says becomes records as a kit's: in order, names that lead down, no more
 * bytes of a file than were asked for, however they are cut; a range lies within numbers; every
 * view is one JSON value. */
#include "door/rest/files.h"

#include "engine/kit_sh.h"

#include "../../src/door/shared/files_read.c"
#include "fuzz.h"

static void view(const kit_record *r)
{
    CLEANUP(json_decrefp)
    json_t *o = r->type == KIT_ENTRY   ? view_file(r, r->name, r->name_len)
                : r->type == KIT_ERROR ? view_file_error(r)
                                       : NULL;
    CLEANUP(buf_done) buf text = {0};

    if (!o)
        return;
    json_write(&text, o);
    CLEANUP(json_decrefp) json_t *back = json_loadb(text.p, text.len, 0, NULL);
    MUST(json_is_object(back) && json_object_get(back, "name"));
}

/* The verdicts of one way to cut the answer, as text. */
static void run_sh(const kit_request *rq, const char *p, size_t n, size_t step, buf *told)
{
    const exec_end end = {.how = EXEC_EXITED};
    kit_sh *s = NULL;
    kit_order order = {0};
    size_t at = 0, have = 0;
    uint64_t bytes = 0;

    err_free(kit_sh_new(rq, &s));
    MUST(s);
    for (int turns = 0; turns < 100000 && !order.ended; turns++) {
        kit_record r;
        size_t used = 0;
        enum kit_verdict v = kit_sh_decode(s, p + at, have - at, have == n, &end, &r, &used);
        MUST(used <= have - at);
        if (v == KIT_SHORT && have < n) {
            have = n - have < step ? n : have + step;
            continue;
        }
        if (v != KIT_OK) {
            buf_printf(told, "%d", v);
            break;
        }
        at += used;
        MUST(used || r.type == KIT_END || r.type == KIT_ERROR);
        if (r.type == KIT_PING)
            continue;
        if (!kit_order_check(&order, &r))
            break;
        if (r.type == KIT_DATA) {
            bytes += r.bytes_len;
            continue; /* how it is cut is the pieces' business */
        }
        if (r.type == KIT_ENTRY)
            MUST(kit_name_valid(r.name, r.name_len));
        view(&r);
        buf_printf(told, "%u.%zu ", r.type, r.name_len);
    }
    MUST(bytes <= rq->length);
    buf_printf(told, "=%lu", bytes);
    kit_sh_free(s);
}

static void run_shell(fuzz_in *in)
{
    static const enum kit_verb VERBS[] = {KIT_STAT,  KIT_READ, KIT_WRITE, KIT_LIST,
                                          KIT_MKDIR, KIT_MOVE, KIT_REMOVE};
    kit_request rq = {.verb = VERBS[fuzz_byte(in) % ARRAY_LEN(VERBS)], .path = "p", .to = "a"};
    CLEANUP(buf_done) buf whole = {0}, cut = {0};

    rq.flags = fuzz_byte(in) & KIT_F_SUFFIX;
    rq.offset = fuzz_byte(in);
    rq.length = fuzz_byte(in);
    rq.max = fuzz_byte(in);
    char *p = memcpy(xmalloc(in->n + 1), in->p, in->n);
    run_sh(&rq, p, in->n, in->n + 1, &whole);
    run_sh(&rq, p, in->n, 1, &cut);
    MUST(!strcmp(buf_cstr(&whole), buf_cstr(&cut)));
    free(p);
}

static void run_range(fuzz_in *in)
{
    CLEANUP(freep) char *text = xstrndup((const char *)in->p, in->n);
    CLEANUP(freep) char *range = str_printf("bytes=%s", text);
    kit_request q = {.length = UINT64_MAX};

    if (!parse_range(range, &q))
        return;
    MUST(q.offset <= INT64_MAX && (q.length || q.flags & KIT_F_SUFFIX));
    MUST(!(q.flags & KIT_F_SUFFIX) || !q.offset);
}

static void run_views(fuzz_in *in)
{
    size_t used;
    kit_record r;

    for (; in->n && kit_decode(in->p, in->n, &r, &used) == KIT_OK; in->p += used, in->n -= used)
        view(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};

    switch (fuzz_byte(&in) % 3) {
    case 0:
        run_shell(&in);
        break;
    case 1:
        run_range(&in);
        break;
    default:
        run_views(&in);
    }
    return 0;
}
