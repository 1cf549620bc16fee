/* Answers the requests that come in checked frames, with one function for each type. */
#pragma once

#include "warden/conn.h"

struct warden;

/* Starts the worker threads. */
void ops_start(struct warden *w);
/* Answers the job now, or queues it. Takes ownership of j. */
void ops_take(struct warden *w, job *j);
