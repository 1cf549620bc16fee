/* The native API's forms of a kit's records; door/shared/files.h has the relay job.
 * files.c has the handlers and the single answers, files_view.c the values as JSON,
 * files_list.c lists, searches and watches. */
#pragma once

#include "door/rest/internal.h"
#include "door/shared/files.h"

typedef struct rest_files { /* file_job.own */
    /* single answers */
    json_t *entry;

    /* list, search */
    buf body;
    char *last; /* the name of the last entry, and its length */
    size_t last_len;
    uint64_t count, size;

    /* watch */
    uint64_t sequence, last_sent;
    bool resumed;
} rest_files;

void rest_files_done(void *own);

extern const file_form FILE_LIST, FILE_SEARCH, FILE_WATCH;

/* files_view.c */
json_t *view_name(const char *p, size_t n);
json_t *view_file(const kit_record *r, const char *name, size_t n);
/* An entry that was left out. */
json_t *view_file_error(const kit_record *r);
