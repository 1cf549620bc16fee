"""Servers inside, by the host that get_host gives."""
from client import A, behaviour, check, equal, have

SERVER = "mkdir -p /tmp/www && cd /tmp/www && echo served >index.html && exec python3 -m http.server {} --bind 127.0.0.1"


def tokens(sb):
    """What a caller from outside has to show."""
    token = getattr(sb, "_envd_access_token", None) or getattr(sb, "_SandboxBase__envd_access_token", None)
    token = token or getattr(sb.connection_config, "_envd_access_token", None)
    if not token:
        token = sb.connection_config.headers.get("X-Access-Token") or getattr(sb.connection_config, "sandbox_headers", {}).get("X-Access-Token")
    have(token, "a token to be shown")
    return {"X-Access-Token": token}


@behaviour
async def get_host(t):
    equal(t.sb.get_host(8000), f"8000-{t.sb.sandbox_id}.sbx.test")


@behaviour
async def port_served(t):
    handle = await t.start(SERVER.format(8123))
    try:
        async def served():
            status, body = t.fetch(t.sb.get_host(8123), headers=tokens(t.sb))
            return status == 200 and body == b"served\n"
        await t.eventually("the server inside answers", served, 15)
        status, _ = t.fetch(t.sb.get_host(8123))
        check(status in (401, 403), f"status without a token is {status}")
    finally:
        await t.end(handle)


@behaviour
async def port_closed(t):
    equal(t.fetch(t.sb.get_host(8999), headers=tokens(t.sb))[0], 502, "status")


@behaviour
async def port_of_killed(t):
    sb = await t.make()
    headers = tokens(sb)
    await A(sb.kill())
    status, body = t.fetch(sb.get_host(8000), headers=headers)
    equal(status, 502, "status")
    check(b"was not found" in body, body)
