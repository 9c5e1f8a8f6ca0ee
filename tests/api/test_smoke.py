import json


async def test_smoke(client, driver):
    """Smoke."""
    r = await client.post("/v1/sagas", json={"definition": "book_trip", "input": {"a": 1}})
    print(r.status_code, r.headers, r.text)
    sid = r.json()["id"]
    for m, p, kw in [
        ("GET", f"/v1/sagas/{sid}", {}),
        ("GET", "/v1/sagas", {}),
        ("GET", f"/v1/sagas/{sid}/events", {}),
        ("POST", f"/v1/sagas/{sid}/cancel", {"json": {"reason": "x"}}),
        ("GET", f"/v1/sagas/{sid}/events", {}),
        ("POST", f"/v1/sagas/{sid}/retry", {"json": {"reason": "x"}}),
        ("DELETE", f"/v1/definitions/x", {}),
        ("GET", "/v1/definitions/book_trip", {}),
        (
            "PUT",
            "/v1/definitions/book_trip",
            {"content": b"amends: 1", "headers": {"content-type": "application/yaml"}},
        ),
    ]:
        r = await client.request(m, p, **kw)
        print(m, p, r.status_code, dict(r.headers))
        print(json.dumps(r.json(), indent=1)[:3000])
    s = await driver.start()
    await driver.compensate(s)
    r = await client.get(f"/v1/sagas/{s}")
    print(json.dumps(r.json(), indent=1))
    r = await client.get(f"/v1/sagas/{s}/events")
    print("\n".join(e["summary"] for e in r.json()["items"]))
    print(json.dumps(r.json()["items"][-1], indent=1))
    s = await driver.start()
    await driver.strand(s)
    r = await client.get(f"/v1/sagas/{s}")
    print(json.dumps(r.json()["stuck"], indent=1))
    r = await client.get(f"/v1/sagas/{s}/events")
    print("\n".join(e["summary"] for e in r.json()["items"]))
