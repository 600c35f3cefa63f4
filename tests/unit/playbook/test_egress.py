"""How a site reaches out stands in the environment of every task that may, and a task's own word beats it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k3env.errors import DocumentError
from k3env.protocol import codec
from tests.unit.playbook.conftest import compiled

SITE = {"egress": {"https_proxy": "http://proxy:3128", "ca": "/etc/ssl/site.pem", "index_url": "https://index/simple"}}
TASK = "- hosts: all\n  tasks:\n    - demo: {path: /x}\n"


def environment(text: str = TASK, *options: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
    return compiled(text, *options, variables=SITE if variables is None else variables).plan.tasks[0].environment


def test_each_program_finds_it_under_its_own_name() -> None:
    found = environment()
    assert {name for name, value in found.items() if value == "http://proxy:3128"} == {"https_proxy", "HTTPS_PROXY"}
    certificates = {name for name, value in found.items() if value == "/etc/ssl/site.pem"}
    assert certificates == {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"}
    assert found["PIP_INDEX_URL"] == "https://index/simple"
    assert environment(variables={}) == {}, "plans without it are as they were"


def test_a_tasks_own_word_wins() -> None:
    text = TASK + "      environment: {PIP_CERT: /mine.pem}\n"
    found = environment(text)
    assert found["PIP_CERT"] == "/mine.pem" and found["GIT_SSL_CAINFO"] == "/etc/ssl/site.pem"


def test_a_secret_stays_a_reference() -> None:
    given = {"egress": {"https_proxy": {"secret": "env:PROXY"}}}
    assert environment(variables=given)["https_proxy"] == {"$secret": "env:PROXY"}
    (plan,) = [compiled(TASK, variables=given).plan]
    assert "proxy:3128" not in codec.dumps(plan)


def test_the_command_line_gives_it_too() -> None:
    assert environment(TASK, f"egress={json.dumps(SITE['egress'])}", variables={})["PIP_CERT"] == "/etc/ssl/site.pem"


def test_what_only_reads_gets_none() -> None:
    assert environment("- hosts: all\n  tasks:\n    - verify: {checks: ['*']}\n") == {}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ca": "site.pem"}, "ca must be an absolute path"),
    ({"https_proxy": "proxy:3128"}, "https_proxy must be a URL"),
    ({"https_proxy": "http://me:secret-word@proxy:3128"}, "https_proxy holds a password: say where it is kept"),
    ({"index_url": "https://me:secret-word@index/simple"}, "index_url holds a password"),
    ({"https_proxy": "http://[::1"}, "https_proxy must be a URL such as http://proxy:3128"),
    ({"https_proxy": "http://proxy:99999"}, "https_proxy must be a URL"),
    ({"http_proxy": "http://proxy:port"}, "http_proxy must be a URL"),
    ({"http_proxy": "proxy:port"}, "http_proxy must be a URL"),
    ({"http_proxy": "ftp://proxy:1"}, "http_proxy must be a URL"),
    ({"http_proxy": "http://secret-word@"}, "http_proxy must be a URL"),
    ({"http_proxy": "http://pro xy:1"}, "http_proxy must be a URL"),
    ({"index_url": "ftp://index/simple"}, "index_url must be a URL"),
    ({"index_url": "index/simple"}, "index_url must be a URL"),
    ({"extra_index_url": "https://a/simple http://[b"}, "extra_index_url must be a URL"),
    ({"ca": {"secret": "env:CA"}}, "ca must be an absolute path"),
    ({"proxy": "http://p:1"}, "egress"),
]


@pytest.mark.parametrize(
    "given",
    [
        {"https_proxy": "http://proxy:3128", "http_proxy": "socks5h://[::1]:1080/", "index_url": "https://i/simple"},
        {"https_proxy": "", "extra_index_url": "https://a/simple file:///wheels"},
        {
            "https_proxy": {"secret": "env:P"},
            "extra_index_url": {"secret": "env:I"},
            "index_url": "https://me@i/simple",
        },
    ],
)
def test_what_programs_take_is_taken(given: dict[str, Any]) -> None:
    assert environment(variables={"egress": given})


@pytest.mark.parametrize("given, words", WRONG)
def test_what_can_not_be_meant_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DocumentError, match=words) as caught:
        environment(variables={"egress": given})
    assert "secret-word" not in str(caught.value)


def test_the_offline_directory_is_an_absolute_path() -> None:
    with pytest.raises(DocumentError, match="offline_dir must be an absolute path"):
        environment(variables={"offline_dir": "off"})


def test_the_schema_takes_secrets_where_they_may_stand() -> None:
    import jsonschema

    from k3env.playbook import schemas

    def fits(egress: dict[str, Any]) -> bool:
        return bool(jsonschema.validators.validator_for(whole)(whole).is_valid({"egress": egress}))

    whole = schemas.variables()
    secret = {"secret": "env:PROXY"}
    assert fits({"https_proxy": secret, "ca": "/etc/ssl/site.pem"}) and fits({"https_proxy": "{{ proxy }}"})
    assert not fits({"ca": secret}) and not fits({"https_proxi": "x"})
