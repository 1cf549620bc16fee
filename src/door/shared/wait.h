/* Answers that wait for one callback: a queued create, a pull. No thread waits.
 *
 * A ticket has two holders, the relay and the code that will finish it; either may release it
 * first. Errors are in the form that the response had when the wait began. */
#pragma once

#include "base/json.h"
#include "net/http.h"

typedef struct wait_ticket wait_ticket;
/* wait_finish (any thread, once): sets the answer, which is a status with a body, or an error.
 * Takes ownership of both. Without a body the answer has none. Returns false if the caller had
 * disconnected before: `over` was, or will be, called early. */
wait_ticket *wait_start(request *rq, response *rs, bool events);
bool wait_finish(wait_ticket *t, err *failure, int status, json_t *body, bool replay);
/* Memory that the request holds until wait_finish(), even if its caller has disconnected. */
void wait_hold(wait_ticket *t, request_hold *hold);
/* Sets a function that is called once when the connection is done with the answer. early: the
 * caller disconnected before there was an answer. Call it before the handler returns. */
void wait_over(wait_ticket *t, void (*over)(void *arg, bool early), void *arg);
/* Sends an event before the answer. Only if started with `events`; before wait_finish(). */
void wait_event(wait_ticket *t, const char *event, json_t *data);
