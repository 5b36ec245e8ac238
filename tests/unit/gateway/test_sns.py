"""Amazon SNS over HTTP: its signature, its topic, its certificate's address, and its subscription."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from unit.gateway.senders import SECRET, only

TOPIC = "arn:aws:sns:eu-central-1:123456789012:orders"
CERTIFICATE_URL = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123abcd.pem"
SUBSCRIBE_URL = "https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription&Token=abc"
NOTIFICATION = {
    "Type": "Notification",
    "MessageId": "m-1",
    "TopicArn": TOPIC,
    "Subject": "An order",
    "Message": '{"total": 12}',
    "Timestamp": "2026-11-03T10:00:00.000Z",
}
CONFIRMATION = {
    "Type": "SubscriptionConfirmation",
    "MessageId": "c-1",
    "Token": "abc",
    "TopicArn": TOPIC,
    "Message": "You have chosen to subscribe to the topic.",
    "SubscribeURL": SUBSCRIBE_URL,
    "Timestamp": "2026-11-03T10:00:00.000Z",
}
ORDER = {
    "Notification": ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"],
    "SubscriptionConfirmation": [
        "Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type",
    ],
}  # fmt: skip

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate() -> bytes:
    """A certificate as SNS publishes one."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def signed(message: dict[str, str], *, version: str = "2", url: str = CERTIFICATE_URL) -> dict[str, str]:
    """The message as SNS signs it: names and values on lines of their own, in the order of the names."""
    text = "".join(f"{name}\n{message[name]}\n" for name in ORDER[message["Type"]] if name in message)
    algorithm = hashes.SHA256() if version == "2" else hashes.SHA1()
    signature = base64.b64encode(KEY.sign(text.encode(), padding.PKCS1v15(), algorithm)).decode()
    return {**message, "SignatureVersion": version, "Signature": signature, "SigningCertURL": url}


class Internet:
    """The addresses of SNS, and who asked for them."""

    def __init__(self) -> None:
        self.pages = {CERTIFICATE_URL: certificate(), SUBSCRIBE_URL: b"<ConfirmSubscriptionResponse/>"}
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        return self.pages[url]


@pytest.fixture
def internet(site: Any) -> Internet:
    """The site, with an internet that has SNS in it."""
    internet = Internet()
    gateway = site.app.state.gateway
    gateway._read = internet
    gateway._door._documents._read = internet
    return internet


async def post(site: Any, message: dict[str, str], **headers: str) -> Any:
    kind = {"x-amz-sns-message-type": message.get("Type", ""), "Content-Type": "text/plain; charset=UTF-8"}
    return await site.post(content=json.dumps(message), headers={**kind, **headers})


@pytest.mark.parametrize("version", ["1", "2"])
async def test_a_notification(site: Any, internet: Internet, version: str) -> None:
    """A signed message of the topic is stored once, in both versions; the certificate is read once."""
    site.watch(preset="sns", auth=None, sender=TOPIC)
    answers = [await post(site, signed(NOTIFICATION, version=version)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 200]
    event = only(site)
    assert (event.id, event.subject, event.data) == ("m-1", "An order", {"total": 12})
    assert event.source == f"sns://{TOPIC}"
    assert event.time.isoformat() == "2026-11-03T10:00:00+00:00"
    assert internet.asked == [CERTIFICATE_URL]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"Message": '{"total": 13}'}, "signature wrong"),
        ({"MessageId": "m-2"}, "signature wrong"),
        ({"Subject": "Another"}, "signature wrong"),
        ({"Signature": "!"}, "signature malformed"),
        ({"SignatureVersion": "3"}, "type or signature version unknown"),
        ({"Type": "Rumour"}, "type or signature version unknown"),
        ({"TopicArn": TOPIC + "2"}, "another topic"),
        ({"SigningCertURL": CERTIFICATE_URL.replace("amazonaws", "evil")}, "certificate from elsewhere"),
        ({"SigningCertURL": CERTIFICATE_URL.replace("https", "http")}, "certificate from elsewhere"),
        ({"SigningCertURL": CERTIFICATE_URL.replace("central", "west")}, "certificate from elsewhere"),
        ({"SigningCertURL": CERTIFICATE_URL + "?x=https://evil.example.com"}, "certificate from elsewhere"),
        (
            {"SigningCertURL": "https://sns.eu-central-1.amazonaws.com.evil.com/SimpleNotificationService-0.pem"},
            "certificate from elsewhere",
        ),
    ],
)  # fmt: skip
async def test_a_forged_notification(
    site: Any, internet: Internet, change: dict[str, str], check: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is changed, it is refused; no certificate is read for another topic or from another host."""
    site.watch(preset="sns", auth=None, sender=TOPIC)
    assert (await post(site, {**signed(NOTIFICATION), **change})).status_code == 401
    assert f"check={check!r}" in caplog.text
    assert internet.asked in ([], [CERTIFICATE_URL])
    assert site.stored() == []


async def test_a_certificate_that_cannot_be_read(site: Any, internet: Internet) -> None:
    """Without a usable certificate nobody is let in and SNS is asked to try again."""
    site.watch(preset="sns", auth=None, sender=TOPIC)
    for page in (b"no certificate", b""):
        internet.pages[CERTIFICATE_URL] = page
        assert (await post(site, signed(NOTIFICATION))).status_code == 503
    del internet.pages[CERTIFICATE_URL]
    site.app.state.gateway._door._documents._known.clear()
    assert (await post(site, signed(NOTIFICATION))).status_code == 503
    assert site.stored() == []


async def test_a_subscription_is_not_confirmed_by_itself(
    site: Any, internet: Internet, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless asked to, the gateway only writes the address into its log."""
    site.watch(preset="sns", auth=None, sender=TOPIC)
    answer = await post(site, signed(CONFIRMATION))
    assert (answer.status_code, answer.json()) == (200, {"status": "unconfirmed"})
    assert internet.asked == [CERTIFICATE_URL]
    assert SUBSCRIBE_URL in caplog.text
    assert site.stored() == []


async def test_a_subscription_is_confirmed_if_asked(site: Any, internet: Internet) -> None:
    """With confirm the address of a signed confirmation is opened; a failure is 503, so that SNS repeats."""
    site.watch(preset="sns", auth=None, sender=TOPIC, confirm=True)
    assert (await post(site, {**signed(CONFIRMATION), "Token": "other"})).status_code == 401
    answer = await post(site, signed(CONFIRMATION))
    assert (answer.status_code, answer.json()) == (200, {"status": "confirmed"})
    assert internet.asked[-1] == SUBSCRIBE_URL
    del internet.pages[SUBSCRIBE_URL]
    assert (await post(site, signed(CONFIRMATION))).status_code == 503
    elsewhere = signed(
        {**CONFIRMATION, "SubscribeURL": "https://evil.example.com/?Action=ConfirmSubscription"}
    )
    assert (await post(site, elsewhere)).status_code == 422
    assert "https://evil.example.com/?Action=ConfirmSubscription" not in internet.asked


async def test_raw_delivery(site: Any) -> None:
    """A raw message has no signature: it needs another proof, and is then stored under SNS's message id."""
    headers = {
        "x-amz-sns-message-type": "Notification",
        "x-amz-sns-rawdelivery": "true",
        "x-amz-sns-message-id": "r-1",
        "x-amz-sns-topic-arn": TOPIC,
    }
    site.watch(preset="sns", auth=None, sender=TOPIC)
    site.watch("raw", preset="sns", auth="query", conn_id="shop")
    assert (await site.post(content=b'{"total": 1}', headers=headers)).status_code == 401
    answer = await site.post("/hooks/raw?token=" + SECRET, content=b'{"total": 1}', headers=headers)
    assert answer.status_code == 202
    event = only(site)
    assert (event.id, event.data, event.source) == ("r-1", {"total": 1}, f"sns://{TOPIC}")


async def test_unsigned_headers_do_not_change_a_signed_message(site: Any, internet: Internet) -> None:
    """A captured notification cannot come again as a raw message under another id."""
    site.watch(preset="sns", auth=None, sender=TOPIC)
    raw = {"x-amz-sns-rawdelivery": "true", "x-amz-sns-message-id": "r-2"}
    assert (await post(site, signed(NOTIFICATION), **raw)).json()["id"] == "m-1"


async def test_the_end_of_a_subscription_is_no_event(site: Any, internet: Internet) -> None:
    """What SNS tells about the subscription's end is answered and not stored."""
    ORDER["UnsubscribeConfirmation"] = ORDER["SubscriptionConfirmation"]
    site.watch(preset="sns", auth=None, sender=TOPIC)
    answer = await post(site, signed({**CONFIRMATION, "Type": "UnsubscribeConfirmation"}))
    assert (answer.status_code, answer.json()) == (200, {"events": []})
    assert site.stored() == []
