"""Amazon SNS over HTTP: signed by a certificate of AWS, for the one topic that the watcher names.

Any AWS account can have SNS sign, so the watcher's ``sender`` is the TopicArn, and it is compared before
anything else. The certificate is read from SNS's own host in the topic's region and from nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from windsock.envelopes import sns
from windsock.events import InvalidEvent, parse_json
from windsock.gateway.auth import same
from windsock.gateway.documents import Documents, DocumentUnavailable
from windsock.gateway.sent import Sent
from windsock.messages import Message

__all__ = ["check_sns", "confirmation", "message_of"]

logger = logging.getLogger("windsock.gateway.sns")

_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": (
        "Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type",
    ),
}  # fmt: skip
_SIGNED["UnsubscribeConfirmation"] = _SIGNED["SubscriptionConfirmation"]
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "1": hashes.SHA1(),  # noqa: S303 - what SNS signs with unless the topic asks for version 2
    "2": hashes.SHA256(),
}
_CERTIFICATE = re.compile(
    r"https://sns\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/SimpleNotificationService-[0-9a-f]+\.pem"
)
_SUBSCRIBE = re.compile(r"https://sns\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/\?[!-~]+")


async def check_sns(sent: Sent, topic: str, documents: Documents) -> str | None:
    """Whether SNS signed this message of this topic; else the check that failed."""
    try:
        message = _message(sent)
    except InvalidEvent:
        return "not an SNS message"
    if not same(_text(message, "TopicArn"), topic):
        return "another topic"
    signed = _SIGNED.get(_text(message, "Type"))
    algorithm = _HASHES.get(_text(message, "SignatureVersion") or "1")
    if signed is None or algorithm is None:
        return "type or signature version unknown"
    address = _CERTIFICATE.fullmatch(_text(message, "SigningCertURL") or _text(message, "SigningCertUrl"))
    if address is None or address["region"] not in topic.split(":")[3:4]:
        return "certificate from elsewhere"
    try:
        signature = base64.b64decode(_text(message, "Signature"), validate=True)
    except (binascii.Error, ValueError):
        return "signature malformed"
    # Subject is left out when there is none; every other field is always there.
    lines = [f"{name}\n{message[name]}\n" for name in signed if isinstance(message.get(name), str)]
    key = _public_key(await documents.get(address[0]))
    try:
        key.verify(signature, "".join(lines).encode(), padding.PKCS1v15(), algorithm)
    except InvalidSignature:
        return "signature wrong"
    return None


def confirmation(sent: Sent) -> tuple[str, str] | None:
    """The topic and the address that confirms its subscription, if that is what SNS asks for."""
    if sent.headers.get("x-amz-sns-message-type") == "Notification":
        return None
    message = _message(sent)
    if _text(message, "Type") != "SubscriptionConfirmation":
        return None
    address, topic = _text(message, "SubscribeURL"), _text(message, "TopicArn")
    found = _SUBSCRIBE.fullmatch(address)
    if found is None or found["region"] not in topic.split(":")[3:4]:
        raise InvalidEvent("SubscribeURL is not an address of SNS in the topic's region")
    return topic, address


def message_of(sent: Sent, *, signed: bool) -> Message | None:
    """The message that was published; None for what SNS tells about the subscription.

    With raw message delivery the body is the message, and SNS's headers say what it is: they are not signed,
    so they count only where something else proves the sender.
    """
    if not signed and sent.headers.get("x-amz-sns-rawdelivery", "").lower() == "true":
        return Message(
            body=sent.body,
            id=sent.headers.get("x-amz-sns-message-id"),
            content_type=sent.headers.get("content-type"),
        )
    notification = sns.read(sent.body)
    if notification is None:
        raise InvalidEvent("not an SNS message: a JSON object with 'Type' and 'TopicArn' is needed")
    return None if notification.confirmation else sns.message_of(notification, Message(body=b""))


def _message(sent: Sent) -> dict[str, Any]:
    value = parse_json(sent.body)  # SNS calls its JSON text/plain
    if not isinstance(value, dict):
        raise InvalidEvent("not an SNS message: no JSON object")
    return value


def _text(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""


def _public_key(certificate: bytes) -> rsa.RSAPublicKey:
    try:
        key = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError as error:
        raise DocumentUnavailable("the certificate of SNS cannot be read") from error
    if not isinstance(key, rsa.RSAPublicKey):
        raise DocumentUnavailable("the certificate of SNS has no RSA key")
    return key
