import asyncio, time, orjson, cProfile, pstats
from app.operations import StartRequest, start_saga


async def test_bench(app, driver, context):
    """B."""
    ctx = driver.context
    app.state.context = ctx
    body = orjson.dumps(
        {
            "definition": "book_trip",
            "input": {"city": "Rome", "card": "tok_1", "n": 3},
            "labels": {"env": "prod"},
        }
    )

    async def one():
        sent = []
        msgs = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return msgs.pop()

        async def send(m):
            sent.append(m)

        await app(
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": "1.1",
                "method": "POST",
                "path": "/v1/sagas",
                "raw_path": b"/v1/sagas",
                "query_string": b"",
                "root_path": "",
                "scheme": "http",
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"host", b"x"),
                    (b"content-length", str(len(body)).encode()),
                    (b"accept", b"*/*"),
                    (b"user-agent", b"python-httpx/1.0"),
                ],
                "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 8000),
            },
            receive,
            send,
        )
        assert sent[0]["status"] == 202

    async def op():
        await start_saga(
            ctx,
            StartRequest(definition="book_trip", input={"city": "Rome"}, labels={"env": "prod"}),
        )

    async def run(f, n, c):
        async def w():
            for _ in range(n // c):
                await f()

        t = time.process_time()
        await asyncio.gather(*(w() for _ in range(c)))
        return (time.process_time() - t) / n * 1e6

    await run(one, 200, 50)
    await run(op, 200, 50)
    for _ in range(3):
        print("api", await run(one, 2000, 50), "op", await run(op, 2000, 50))
    p = cProfile.Profile()
    p.enable()
    await run(one, 2000, 50)
    p.disable()
    pstats.Stats(p).sort_stats("tottime").print_stats(35)
