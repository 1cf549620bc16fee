/* The error table. No include guard: included with ERR_ROW defined.
 *
 * ERR_ROW(ID, name, HTTP, Connect, CLI, retryable, default remedy)
 *
 * CLI statuses follow docker's: 125 an error of bothy itself, 126 not executable, 127 not found,
 * 124 timed out. */
ERR_ROW(INVALID_REQUEST, "invalid_request", 400, "invalid_argument", 125, false,
        "Correct the named field and send the request again.")
ERR_ROW(USER_NOT_FOUND, "user_not_found", 400, "invalid_argument", 125, false,
        "Name a user of the image's /etc/passwd, or a numeric uid or uid:gid.")
ERR_ROW(USER_NOT_MAPPED, "user_not_mapped", 400, "invalid_argument", 125, false,
        "Use a uid and gid below 65536: ids above are not mapped into the sandbox.")
ERR_ROW(CWD_NOT_FOUND, "cwd_not_found", 400, "invalid_argument", 126, false,
        "Create the working directory first, or name one that the user may enter.")
ERR_ROW(EXEC_FAILED, "exec_failed", 400, "failed_precondition", 126, false,
        "Check that the program exists in the image, is executable, and that its arguments fit.")
ERR_ROW(UNAUTHENTICATED, "unauthenticated", 401, "unauthenticated", 125, false,
        "Send a valid key as 'Authorization: Bearer e2b_...'; 'bothy key create' makes one.")
ERR_ROW(FORBIDDEN, "forbidden", 403, "permission_denied", 125, false,
        "Use a key whose role allows this verb, or ask an administrator.")
ERR_ROW(NOT_FOUND, "not_found", 404, "not_found", 125, false,
        "Check the id; list what exists and is yours.")
ERR_ROW(METHOD_NOT_ALLOWED, "method_not_allowed", 405, "unimplemented", 125, false,
        "Use one of the methods named in the Allow header.")
ERR_ROW(CONFLICT, "conflict", 409, "aborted", 125, false,
        "Read the current state and repeat the request on top of it.")
ERR_ROW(SANDBOX_PAUSED, "sandbox_paused", 409, "failed_precondition", 125, false,
        "Resume the sandbox first: POST .../resume, or 'bothy resume'.")
ERR_ROW(SANDBOX_EXHAUSTED, "sandbox_exhausted", 409, "resource_exhausted", 125, true,
        "End some running commands of this sandbox, then try again.")
ERR_ROW(SANDBOX_GONE, "sandbox_gone", 410, "not_found", 125, false,
        "The sandbox has ended; its record tells the cause. Create a new one.")
ERR_ROW(TOO_LARGE, "too_large", 413, "resource_exhausted", 125, false,
        "Send less at once; the message names the limit.")
ERR_ROW(RANGE, "range", 416, "out_of_range", 125, false,
        "Ask for a range inside the length that the answer names.")
ERR_ROW(IDEMPOTENCY_MISMATCH, "idempotency_mismatch", 422, "already_exists", 125, false,
        "Use a new Idempotency-Key for a different request.")
ERR_ROW(IMAGE_UNSUPPORTED, "image_unsupported", 422, "failed_precondition", 125, false,
        "Use an image for this machine's architecture with at most 128 gzip, zstd or plain layers.")
ERR_ROW(QUOTA_EXCEEDED, "quota_exceeded", 429, "resource_exhausted", 125, true,
        "Wait as long as Retry-After says, or end something that is counted.")
ERR_ROW(
    INTERNAL, "internal", 500, "internal", 125, false,
    "This is a fault of bothy: report it with the request id; the daemon's log has the details.")
ERR_ROW(CREATE_FAILED, "create_failed", 500, "internal", 125, true,
        "Try again; if it stays, 'bothy doctor' on the node shows what is wrong.")
ERR_ROW(
    WALL_FAILED, "wall_failed", 500, "internal", 125, true,
    "Try again: the slot is destroyed, the next one is tried afresh. If it stays, 'bothy doctor' "
    "on the node says which wall it is.")
ERR_ROW(UNSUPPORTED, "unsupported", 501, "unimplemented", 125, false,
        "See GET /v1/info for what this node can do, and leave the named field out.")
ERR_ROW(IMAGE_PULL_FAILED, "image_pull_failed", 502, "unavailable", 125, true,
        "Check the image's name and that its source can be reached and read.")
ERR_ROW(PORT_CLOSED, "port_closed", 502, "unavailable", 125, true,
        "Start the server in the sandbox and let it listen on 127.0.0.1 or 0.0.0.0.")
ERR_ROW(POOL_EXHAUSTED, "pool_exhausted", 503, "unavailable", 125, true,
        "Wait as long as Retry-After says, or raise the pool's size.")
ERR_ROW(DRAINING, "draining", 503, "unavailable", 125, true,
        "The node is going down; use another one or wait for its return.")
ERR_ROW(UNAVAILABLE, "unavailable", 503, "unavailable", 125, true,
        "Wait a moment and try again; 'bothy doctor' on the node shows what is missing.")
ERR_ROW(TIMEOUT, "timeout", 504, "deadline_exceeded", 124, true,
        "Allow more time, or make the work smaller.")
ERR_ROW(DISK_FULL, "disk_full", 507, "resource_exhausted", 125, true,
        "Free space on the node: remove sandboxes and prune images.")
