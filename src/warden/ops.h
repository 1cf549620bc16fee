/* What becomes of a checked frame. */
#pragma once

#include "warden/conn.h"

struct warden;

/* Starts the threads that answer. */
void ops_start(struct warden *w);
/* Takes the job; answered now or later. */
void ops_take(struct warden *w, job *j);
