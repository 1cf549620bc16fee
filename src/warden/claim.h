/* The threads that turn slots into sandboxes, one claim of the FIFO (fifo.h) after the other. */
#pragma once

#define CLAIMERS 2

/* Runs a claimer thread; arg is the warden. Aborts if it cannot make its staging namespace. */
void *claim_run(void *arg);
