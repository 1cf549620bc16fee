/* Answers that wait for one callback: a create in the queue, a pull. No thread waits.
 *
 * The ticket has two holders, the relay and whoever will finish it; either may leave first. Errors
 * are told in the form that the response had when the wait began. */
#pragma once

#include "base/json.h"
#include "net/http.h"

typedef struct wait_ticket wait_ticket;
/* finish (any thread, once): the answer is status and body, or an error; both are consumed. Without
 * a body the answer has none. False: the caller had gone already (over was, or is, called early).
 */
wait_ticket *wait_start(request *rq, response *rs, bool events);
bool wait_finish(wait_ticket *t, err *failure, int status, json_t *body, bool replay);
/* What the request holds until finish, also when its caller has gone. */
void wait_hold(wait_ticket *t, request_hold *hold);
/* Before the handler returns: called once when the connection is done with the answer; early: the
 * caller has gone before there was one. */
void wait_over(wait_ticket *t, void (*over)(void *arg, bool early), void *arg);
/* Only with events: an event on the way. Before finish. */
void wait_event(wait_ticket *t, const char *event, json_t *data);
