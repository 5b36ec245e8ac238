"""AWS clients out of Connections, and what AWS's errors become."""

from __future__ import annotations

import datetime as dt
from typing import Any

import botocore.exceptions as known
import pytest
from aiobotocore.session import AioSession
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from windsock.connections import Connection, parse_connection
from windsock.events import SourceError
from windsock.sources._aws import client, error_code, explained


def connection(**fields: Any) -> Connection:
    extra = {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:1", **fields.pop("extra", {})}
    return Connection(conn_id="aws", conn_type="aws", extra=extra, **fields)


async def refused(code: str, message: str, status: int = 400) -> str:
    """What the source says when AWS answers a call with this error."""
    async with client("sqs", connection(login="AKIA", password="a-secret")) as sqs:
        with Stubber(sqs) as answers:
            answers.add_client_error("get_queue_url", code, message, http_status_code=status)
            with pytest.raises(SourceError) as raised, explained("SQS queue 'orders'", "aws"):
                await sqs.get_queue_url(QueueName="orders")
    return str(raised.value)


@pytest.mark.parametrize(
    "code",
    ["InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken", "UnrecognizedClientException"],
)
async def test_refused_credentials(code: str) -> None:
    """Each way in which AWS refuses credentials says which Connection to correct, without AWS's own text."""
    said = await refused(code, "the request with a-secret is not signed as it should be", 403)
    assert said == (
        f"SQS queue 'orders': AWS refused the credentials ({code}): correct login and password of 'aws'"
    )


async def test_denied_access() -> None:
    """A missing permission is named by the call that needs it."""
    said = await refused("AccessDenied", "User: … is not authorized", 403)
    assert said.endswith("access is denied: allow GetQueueUrl to the user or role of 'aws'")


@pytest.mark.parametrize("code", ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"])
async def test_something_missing(code: str) -> None:
    """A queue that is not there is told in both spellings that SQS has for it."""
    said = await refused(code, "The specified queue does not exist.")
    assert said.startswith("SQS queue 'orders' does not exist")


async def test_failures_of_aws() -> None:
    """What AWS does wrong is told apart from what the user did."""
    assert "it is tried again" in await refused("InternalFailure", "oops", 500)
    assert "was refused with OverLimit (too many)" in await refused("OverLimit", "too many")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (known.NoRegionError(), "set region_name in the extra of 'aws'"),
        (known.NoCredentialsError(), "set login and password of 'aws'"),
        (known.ProfileNotFound(profile="nightly"), "correct profile_name"),
        (known.EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), "check region_name, endpoint_url"),
        (known.ReadTimeoutError(endpoint_url="http://127.0.0.1:1"), "check region_name, endpoint_url"),
        (known.SSLError(endpoint_url="https://127.0.0.1:1", error="self-signed"), "check the certificate"),
        (known.CredentialRetrievalError(provider="sso", error_msg="gone"), "check the role or profile"),
        (known.ParamValidationError(report="QueueName"), "check the options"),
    ],
)
def test_failures_of_the_client(error: Exception, remedy: str) -> None:
    """Each failure of the client itself comes with what to do about it."""
    with pytest.raises(SourceError, match=r"\S: \S") as raised, explained("SQS queue 'orders'", "aws"):
        raise error
    assert remedy in str(raised.value)


def test_other_errors_pass() -> None:
    """What is none of AWS's errors is not turned into one."""
    with pytest.raises(KeyError), explained("SQS queue 'orders'", "aws"):
        raise KeyError("bug")
    assert error_code(KeyError("bug")) == ""
    assert error_code(ClientError({"Error": {"Code": "Throttling"}}, "ListShards")) == "Throttling"


async def used(given: Connection, service: str = "sqs", **options: Any) -> Any:
    """The client that a Connection gives."""
    async with client(service, given, **options) as made:
        return made


async def test_settings_of_a_connection() -> None:
    """Region, endpoint and botocore's own settings come from the extras, an option's region wins."""
    given = connection(
        login="AKIA",
        password="a-secret",
        extra={
            "service_config": {"sqs": {"endpoint_url": "http://127.0.0.1:2"}},
            "config_kwargs": '{"read_timeout": 50}',
        },
    )
    sqs = await used(given)
    assert (sqs.meta.region_name, sqs.meta.endpoint_url) == ("eu-west-1", "http://127.0.0.1:2")
    assert (sqs.meta.config.read_timeout, sqs.meta.config.retries["total_max_attempts"]) == (50, 3)
    kinesis = await used(given, "kinesis", region="eu-central-1")
    assert (kinesis.meta.region_name, kinesis.meta.endpoint_url) == ("eu-central-1", "http://127.0.0.1:1")


async def test_credentials_of_a_uri() -> None:
    """A Connection in Airflow's URI form gives the same client."""
    given = parse_connection(
        "aws", "aws://AKIA:a%2Fsecret@/?region_name=eu-west-1&aws_session_token=t&verify=false"
    )
    sqs = await used(given)
    credentials = await sqs._get_credentials().get_frozen_credentials()
    assert (credentials.access_key, credentials.secret_key, credentials.token) == ("AKIA", "a/secret", "t")


async def test_the_default_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials in the Connection those of the environment count."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    sqs = await used(connection())
    assert (await sqs._get_credentials().get_frozen_credentials()).access_key == "from-the-environment"


async def test_an_assumed_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """With role_arn the client has the role's credentials, asked of STS with the Connection's own."""
    asked: list[dict[str, Any]] = []
    real = AioSession.create_client

    class Sts:
        async def __aenter__(self) -> Sts:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def assume_role(self, **arguments: Any) -> dict[str, Any]:
            asked.append(arguments)
            expires = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
            names = {
                "AccessKeyId": "ROLE",
                "SecretAccessKey": "s",
                "SessionToken": "t",
                "Expiration": expires,
            }
            role = {"AssumedRoleId": "r", "Arn": "arn:aws:sts::1:assumed-role/reader/windsock"}
            return {"Credentials": names, "AssumedRoleUser": role}

    def create(self: AioSession, service: str, **settings: Any) -> Any:
        if service != "sts":
            return real(self, service, **settings)
        asked.append({"key": settings["aws_access_key_id"], "endpoint": settings["endpoint_url"]})
        return Sts()

    monkeypatch.setattr(AioSession, "create_client", create)
    given = connection(
        login="AKIA",
        password="a-secret",
        extra={
            "role_arn": "arn:aws:iam::1:role/reader",
            "assume_role_kwargs": {"ExternalId": "x"},
            "service_config": {"sts": {"endpoint_url": "http://127.0.0.1:3"}},
        },
    )
    async with client("sqs", given) as sqs:
        credentials = await sqs._get_credentials().get_frozen_credentials()
    assert (credentials.access_key, credentials.token) == ("ROLE", "t")
    assert asked == [
        {"key": "AKIA", "endpoint": "http://127.0.0.1:3"},
        {"RoleArn": "arn:aws:iam::1:role/reader", "RoleSessionName": "windsock", "ExternalId": "x"},
    ]


@pytest.mark.parametrize(
    ("extra", "remedy"),
    [
        ({"config_kwargs": {"no_such_setting": 1}}, "config_kwargs is not for botocore"),
        ({"config_kwargs": "no JSON"}, "'config_kwargs' is not a JSON object: write it as one"),
        (
            {"role_arn": "arn:aws:iam::1:role/r", "assume_role_method": "assume_role_with_saml"},
            "use 'assume_role'",
        ),
        ({"profile_name": "no-such-profile"}, "correct profile_name"),
    ],
)
async def test_connections_that_cannot_be_used(extra: dict[str, Any], remedy: str) -> None:
    """A wrong extra is an error that names it, before anything is asked of AWS."""
    with pytest.raises(SourceError, match=remedy):
        await used(connection(login="AKIA", password="a-secret", extra=extra))
