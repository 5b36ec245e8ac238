"""Who gets in, on the wire: the answer tells strangers nothing, the server's log tells the operator why."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

SECRET = "s3cr3t-of-the-shop"
BODY = b'{"total": 120}'


def refused(answer: httpx.Response) -> bool:
    return answer.status_code == 401 and answer.json() == {"detail": "not authorised"}


async def test_hmac(site: Any) -> None:
    """A signed request is accepted; a changed body, an old timestamp or no signature is not."""
    site.watch(auth="hmac", conn_id="shop")
    assert (await site.post_signed(BODY)).status_code == 202
    assert refused(await site.post_signed(BODY, age=301))
    assert refused(await site.post_signed(BODY, age=-301))
    assert refused(await site.post_signed(BODY, **{"X-Windsock-Signature": "sha256=" + "0" * 64}))
    assert refused(await site.post_signed(BODY, **{"X-Windsock-Signature": "sha256=short"}))
    assert refused(await site.post_signed(BODY, **{"X-Windsock-Timestamp": "1"}))
    unsigned = await site.post(content=BODY)
    assert refused(unsigned)
    assert "WWW-Authenticate" not in unsigned.headers
    assert site.stored() == [{"total": 120}]


async def test_bearer(site: Any) -> None:
    """The right token is accepted; a wrong one and none are refused with the challenge."""
    site.watch(auth="bearer", conn_id="shop")
    assert (await site.post(json=1, headers={"Authorization": f"Bearer {SECRET}"})).status_code == 202
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": SECRET}):
        answer = await site.post(json=2, headers=headers)
        assert refused(answer)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert site.stored() == [1]


async def test_basic(site: Any) -> None:
    """The right login and password are accepted; others are refused with the challenge."""
    site.watch(auth="basic", conn_id="shop")
    assert (await site.post(json=1, auth=("shop", SECRET))).status_code == 202
    for auth in (None, ("shop", "x"), ("nobody", SECRET)):
        answer = await site.post(json=2, auth=auth)
        assert refused(answer)
        assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert site.stored() == [1]


async def test_airflow(site: Any) -> None:
    """Airflow's own judgement decides, and its different ways to say no look the same outside."""
    site.watch(auth="airflow")
    assert (await site.post(json=1, headers={"Authorization": "Bearer airflow-token"})).status_code == 202
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Bearer expired"}):
        assert refused(await site.post(json=2, headers=headers))
    assert site.stored() == [1]


async def test_airflow_without_airflow(site: Any) -> None:
    """A server that cannot ask Airflow lets nobody in."""
    site.app.state.gateway._door._airflow_user = None
    site.watch(auth="airflow")
    assert refused(await site.post(json=1, headers={"Authorization": "Bearer airflow-token"}))


async def test_strangers_do_not_get_to_send_a_body(site: Any) -> None:
    """A request without credentials is refused before the first byte of its body is read."""
    site.watch(auth="bearer", conn_id="shop")
    site.watch("signed", auth="hmac", conn_id="shop")
    read = []

    async def body() -> Any:
        read.append(True)
        yield b"x"

    for path in ("/hooks/orders", "/hooks/signed"):
        assert refused(await site.post(path, content=body()))
    assert read == []


async def test_strangers_do_not_use_up_the_rate(site: Any) -> None:
    """Requests that fail authentication leave the sender's share untouched."""
    site.watch(auth="bearer", conn_id="shop", rate=0.001)
    for _ in range(5):
        assert refused(await site.post(json=1))
    good = {"Authorization": f"Bearer {SECRET}"}
    assert (await site.post(json=1, headers=good)).status_code == 202
    assert (await site.post(json=2, headers=good)).status_code == 429


async def test_a_missing_connection_is_503(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With no secret to compare with nobody gets in, whatever they send, and the log names the connection."""
    site.watch(auth="bearer", conn_id="gone")
    site.watch("empty", auth="basic", conn_id="empty")
    site.secrets["empty"] = type(site.secrets["shop"])()
    for path, auth in (("/hooks/orders", None), ("/hooks/empty", ("", ""))):
        answer = await site.post(path, json=1, auth=auth)
        assert answer.status_code == 503
        assert "conn" not in answer.text
    assert "conn_id=gone reason=KeyError" in caplog.text
    assert "conn_id=empty reason=it has no password" in caplog.text


async def test_the_failed_check_is_in_the_server_log_only(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator reads which check failed; no secret, right or wrong, is in a log record or an answer."""
    site.watch(auth="hmac", conn_id="shop")
    site.watch("tokens", auth="bearer", conn_id="shop")
    site.watch("logins", auth="basic", conn_id="shop")
    with caplog.at_level(logging.DEBUG):
        answers = [
            await site.post_signed(BODY),
            await site.post_signed(BODY, age=1000),
            await site.post_signed(BODY, **{"X-Windsock-Signature": "sha256=wr0ng"}),
            await site.post("/hooks/tokens", headers={"Authorization": f"Bearer {SECRET}"}),
            await site.post("/hooks/tokens", headers={"Authorization": "Bearer wr0ng"}),
            await site.post("/hooks/logins", auth=("shop", "wr0ng")),
        ]
    assert [answer.status_code for answer in answers] == [202, 401, 401, 202, 401, 401]
    for check in ("timestamp stale", "signature wrong", "bearer token wrong", "login or password wrong"):
        assert f"check={check!r}" in caplog.text
    told = "".join(answer.text + str(answer.headers) for answer in answers)
    for secret in (SECRET, "wr0ng"):
        assert secret not in told
        assert secret not in caplog.text
