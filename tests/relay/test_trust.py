"""The certificates that the relay trusts at an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_endpoint import Connection
from support.tls_server import private_authority, serve

VARIABLES = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")


@pytest.mark.parametrize("named", [*VARIABLES, None])
def test_an_endpoint_is_trusted_where_a_variable_names_its_authority(
    named: str | None,
    relayed: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = tmp_path / "authority.pem"
    context = private_authority(authority)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if named:
        monkeypatch.setenv(named, str(authority))
    with serve(context, {"/v1/chat/completions": b'{"choices": []}'}) as url:
        relay = relayed(Connection.end, url=f"{url}/v1", patience=0.1)
        response = relay.post({"stream": False})
        body = response.read()
    if named:
        assert response.status == 200, body
    else:
        assert b"CERTIFICATE_VERIFY_FAILED" in body
