"""Pause and resume (F10)."""
from harness import expect_error


def cases(suite, node):
    @suite.case("pause: a sandbox that is not there")
    def _():
        for verb in ("pause", "resume"):
            expect_error(node.call("POST", f"/v1/sandboxes/nonode0000000000none/{verb}"), 404, "not_found")
