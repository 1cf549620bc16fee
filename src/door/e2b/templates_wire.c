/* Parses bodies of template builds as SDKs write them. Unknown members are ignored. Pure. */
#include <string.h>

#include "door/e2b/templates.h"

#define MB           (UINT64_C(1) << 20)
#define CPUS_MAX     1024
#define MEMORY_MAX   (1 << 24) /* MB */
#define ARGS_ALL     8192u     /* in all steps together */
#define COMMAND_MAX  (64u << 10)
#define STEP_ARG_MAX (1u << 20)

static err *templates_wire_whole(const json_t *body, const char *name, json_int_t max,
                                 json_int_t *ret_value)
{
    const json_t *v = json_object_get(body, name);

    *ret_value = 0;
    if (!v || json_is_null(v))
        return NULL;
    *ret_value = json_integer_value(v);
    if (!json_is_integer(v) || *ret_value < 1 || *ret_value > max)
        return err_new(ERR_INVALID_REQUEST, "%s: must be a whole number from 1 to %lld", name,
                       (long long)max);
    return NULL;
}

err *wire_strings(const json_t *list, const char *what, size_t max, size_t each, char ***ret_list)
{
    const json_t *one;
    size_t i;

    if (!list || json_is_null(list))
        return NULL;
    if (!json_is_array(list) || json_array_size(list) > max)
        return err_new(ERR_INVALID_REQUEST, "%s: must be an array of at most %zu", what, max);
    json_array_foreach(list, i,
                       one) if (!json_is_string(one) ||
                                json_string_length(one) >
                                    each) return err_new(ERR_INVALID_REQUEST,
                                                         "%s: must be strings of at most %zu bytes",
                                                         what, each);
    json_array_foreach(list, i, one) strv_push(ret_list, xstrdup(json_string_value(one)));
    return NULL;
}

void template_asked_done(template_asked *a)
{
    free(a->name);
    strv_free(a->tags);
    *a = (template_asked){0};
}

/* Reads the name; "name:tag" adds the tag to the list. */
static err *take_name(const json_t *body, template_asked *a)
{
    const char *name = json_str(body, "name");

    if (!name)
        name = json_str(body, "alias");
    if (!name || !*name)
        return err_new(ERR_INVALID_REQUEST, "name: missing");
    const char *colon = strrchr(name, ':');
    a->name = colon ? xstrndup(name, (size_t)(colon - name)) : xstrdup(name);
    if (colon)
        strv_push(&a->tags, xstrdup(colon + 1));
    return NULL;
}

err *template_asked_parse(const json_t *body, template_asked *ret_asked)
{
    json_int_t cpus = 0, memory = 0;

    TRY(take_name(body, ret_asked));
    TRY(wire_strings(json_object_get(body, "tags"), "tags", BUILD_TAGS_MAX, BUILD_TAG_LEN,
                     &ret_asked->tags));
    TRY(templates_wire_whole(body, "cpuCount", CPUS_MAX, &cpus));
    TRY(templates_wire_whole(body, "memoryMB", MEMORY_MAX, &memory));
    ret_asked->limits =
        (limits){.cpu_milli = (uint32_t)cpus * 1000, .memory = (uint64_t)memory * MB};
    return NULL;
}

/* ---- the recipe ---- */

static err *parse_verb(const json_t *step, size_t i, enum build_verb *ret_verb)
{
    const char *type = json_str(step, "type");

    for (int v = 0; type && v < BUILD_VERBS; v++)
        if (!strcasecmp(type, BUILD_VERB_NAMES[v])) {
            *ret_verb = (enum build_verb)v;
            return NULL;
        }
    return err_remedy(
        err_new(ERR_UNSUPPORTED, "steps[%zu]: '%.32s' is no step of a build", i, str_or(type, "")),
        "Steps are RUN, COPY, ENV, WORKDIR and USER.");
}

static const size_t ARGS_MAX[BUILD_VERBS] = {
    [BUILD_RUN] = 2, [BUILD_COPY] = 4, [BUILD_ENV] = 1024, [BUILD_WORKDIR] = 2, [BUILD_USER] = 2};

/* *left: how many arguments the remaining steps may have. */
static err *parse_step(const json_t *step, size_t i, size_t *left, build_step *ret_step)
{
    const json_t *args = json_object_get(step, "args");
    const char *files = json_str(step, "filesHash");
    char what[48];

    snprintf(what, sizeof what, "steps[%zu].args", i);
    TRY(parse_verb(step, i, &ret_step->verb));
    TRY(wire_strings(args, what, ARGS_MAX[ret_step->verb], STEP_ARG_MAX, &ret_step->args));
    if (json_array_size(args) > *left)
        return err_new(ERR_TOO_LARGE, "steps: at most %u arguments in all", ARGS_ALL);
    *left -= json_array_size(args);
    if (ret_step->verb != BUILD_COPY)
        return NULL;
    if (!files || !build_hash_valid(files))
        return err_new(ERR_INVALID_REQUEST, "steps[%zu].filesHash: must be %u hexadecimal digits",
                       i, UPLOAD_HASH_LEN);
    ret_step->files = xstrdup(files);
    return NULL;
}

static err *take_command(const json_t *body, const char *name, char **ret_command)
{
    const char *text = json_str(body, name);

    if (!text || !*text)
        return NULL;
    if (strlen(text) > COMMAND_MAX)
        return err_new(ERR_TOO_LARGE, "%s: at most %u bytes", name, COMMAND_MAX);
    *ret_command = xstrdup(text);
    return NULL;
}

static err *take_base(const json_t *body, build_recipe *r)
{
    const char *from = json_str(body, "fromImage"), *template = json_str(body, "fromTemplate");

    if (!(from && *from) == !(template && *template))
        return err_new(ERR_INVALID_REQUEST, "one of fromImage and fromTemplate is to be given");
    r->as_user = from && *from;
    if (r->as_user)
        r->base.image = xstrdup(from);
    else
        r->base.template = xstrdup(template);
    return NULL;
}

err *build_recipe_parse(const json_t *body, build_recipe *ret_recipe)
{
    const json_t *steps = json_object_get(body, "steps"), *step;
    const json_t *login_for = json_object_get(body, "fromImageRegistry");
    size_t i, left = ARGS_ALL;

    TRY(take_base(body, ret_recipe));
    if (login_for && !json_is_null(login_for))
        return e2b_missing(MISSING_FIELD, "fromImageRegistry: logins of registries are the node's "
                                          "('bothy login')");
    if (steps && !json_is_null(steps) && !json_is_array(steps))
        return err_new(ERR_INVALID_REQUEST, "steps: must be an array");
    if (json_array_size(steps) > BUILD_STEPS_MAX)
        return err_new(ERR_TOO_LARGE, "steps: at most %u", BUILD_STEPS_MAX);
    ret_recipe->steps = xcalloc(json_array_size(steps) + 1, sizeof *ret_recipe->steps);
    json_array_foreach(steps, i, step)
        TRY(parse_step(step, i, &left, &ret_recipe->steps[ret_recipe->nsteps++]));
    TRY(take_command(body, "startCmd", &ret_recipe->start));
    return take_command(body, "readyCmd", &ret_recipe->ready);
}
