"""What seldom happens between a client and its node, on purpose: bytes that are not kept any more, an end that is not answered."""
import httpx

GAP = b'event: gap\ndata: {"stream": "out", "from": 0, "to": 5}\n\n'
COMMAND, TOLD = "echo 0123456789", "\n[... 5 bytes are not kept any more and left out here ...]\n56789\n"


class After(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, first, rest):
        self.first, self.rest = first, rest

    def __iter__(self):
        yield self.first
        yield from self.rest

    async def __aiter__(self):
        yield self.first
        async for part in self.rest:
            yield part

    def close(self):
        self.rest.close()

    async def aclose(self):
        await self.rest.aclose()


class Between(httpx.BaseTransport, httpx.AsyncBaseTransport):
    def __init__(self, inner):
        self.inner, self.forgets, self.refuses = inner, False, False

    def refuse(self, request):
        if self.refuses and request.method == "DELETE":
            raise httpx.ConnectError("not sent")

    def changed(self, answer):
        if not self.forgets or answer.headers.get("content-type") != "text/event-stream":
            return answer
        return httpx.Response(answer.status_code, headers=answer.headers, stream=After(GAP, answer.stream), extensions=answer.extensions)

    def handle_request(self, request):
        self.refuse(request)
        return self.changed(self.inner.handle_request(request))

    async def handle_async_request(self, request):
        self.refuse(request)
        return self.changed(await self.inner.handle_async_request(request))

    def close(self):
        self.inner.close()

    async def aclose(self):
        await self.inner.aclose()


def between(sandbox):
    """Of a sandbox's client, which has no patience from now on."""
    http, sandbox.transport.patience = sandbox.transport._http, 0
    http._transport = Between(http._transport)
    return http._transport
