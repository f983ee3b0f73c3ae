"""Who may ask, what is sent on, what is waited for, and how a run is ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from raw_endpoint import Connection
from support.waiting import wait_until

OK = b'{"choices": [{"message": {"content": "hello"}}]}'


def ok(connection: Connection) -> None:
    connection.answer(OK, content_type="application/json")


def busy(connection: Connection) -> None:
    connection.answer(b'{"error": {"message": "slow down"}}', "429 Too Many", retry_after="0.2")


def ask_in_vain(relay) -> threading.Event:
    """Ask in a thread; the event comes when that ends without an answer of the endpoint."""
    failed = threading.Event()

    def ask() -> None:
        with contextlib.suppress(OSError):
            if relay.post({}).status != 500:
                return
        failed.set()

    threading.Thread(target=ask, daemon=True).start()
    return failed


# -- tokens -----------------------------------------------------------------------------


def test_a_token_is_exchanged_for_the_key(relayed):
    relay = relayed(ok)
    assert relay.post({"a": 1}).read() == OK
    head = relay.endpoint.requests[0].head
    assert b"Bearer real-key" in head
    assert relay.grant.token.encode() not in head


def test_anthropic_gets_its_key_where_it_looks_for_it(relayed):
    relay = relayed(ok, protocol="anthropic")
    assert relay.post({}, **{"x-api-key": relay.grant.token}).status == 200
    assert b"x-api-key: real-key" in relay.endpoint.requests[0].head.lower()
    assert b"authorization" not in relay.endpoint.requests[0].head.lower()


def test_without_a_live_token_nothing_is_sent(relayed):
    relay = relayed(ok)
    for token in ("guessed", relay.process.admin, ""):
        assert relay.post({}, token=token or "none").status == 401
    relay.grant.close()
    assert relay.post({}).status == 401
    assert relay.endpoint.requests == []


def test_the_agents_token_opens_no_grant(relayed):
    relay = relayed(ok)
    from pytest_pinchbench.relay.client import RelayClient, RelayLost

    with pytest.raises(RelayLost, match="wrong token"):
        RelayClient(relay.client.port, relay.grant.token).open("x", "model", seconds=1)


def test_a_closed_grant_ends_its_open_requests(relayed):
    def silent(connection: Connection) -> None:
        connection.socket.recv(1)

    relay = relayed(silent)
    failed = ask_in_vain(relay)
    wait_until(lambda: len(relay.endpoint.requests) == 1)
    assert relay.exchanges()[0]["abandoned"]
    assert failed.wait(30)


# -- what is sent -----------------------------------------------------------------------


def test_an_unchanged_body_is_sent_as_it_came(relayed):
    relay = relayed(ok)
    body = b'{ "model":"m",  "messages" : ["\xc3\xa4\\u00e4"] }'
    relay.post(body)
    assert relay.endpoint.requests[0].body == body


def test_params_are_merged_and_refused_fields_dropped(relayed):
    endpoint = {
        "params": {"top_p": 0.5, "max_tokens": 9, "cacheRetention": "long", "extra_body": {"k": 1}},
        "drop": ["store"],
    }
    relay = relayed(ok, endpoint=endpoint)
    relay.post({"model": "m", "store": False, "max_completion_tokens": 100})
    relay.post({"input": "x", "store": False}, path="/embeddings")
    sent = [json.loads(request.body) for request in relay.endpoint.requests]
    assert sent[0] == {"model": "m", "top_p": 0.5, "max_tokens": 9, "k": 1}
    assert sent[1] == {"input": "x", "store": False}
    assert [one["is_answer"] for one in relay.exchanges()] == [True, False]


@pytest.mark.parametrize(
    ("base", "protocol", "path"),
    [
        ("/v1?api-version=2", "openai-chat", "/v1/chat/completions?api-version=2"),
        ("/openai/deployments/d", "openai-chat", "/openai/deployments/d/chat/completions"),
        ("", "anthropic", "/v1/messages"),
        ("/v1", "anthropic", "/v1/messages"),
        ("/proxy/v1/", "openai-responses", "/proxy/v1/responses"),
    ],
)
def test_the_path_and_the_query_of_the_base_url_are_kept(relayed, base, protocol, path):
    relay = relayed(ok, ok, protocol=protocol)
    other = relayed(ok, protocol=protocol, url=relay.endpoint.url.removesuffix("/v1") + base)
    other.post({})
    assert relay.endpoint.requests[0].head.split()[1].decode() == path


def test_a_refused_field_is_named_with_what_to_do(relayed):
    refusal = b'{"error": {"message": "Unrecognized request argument: \'store\'"}}'
    relay = relayed(lambda c: c.answer(refusal, "400 Bad Request"))
    response = relay.post({"store": False})
    assert (response.status, response.read()) == (400, refusal)
    (exchange,) = relay.exchanges()
    assert exchange["error"] == (
        "400 Unrecognized request argument: 'store' (to leave the field out: "
        "`compat: {drop: [store]}` of the model in the YAML)"
    )


# -- patience ---------------------------------------------------------------------------


def test_a_busy_endpoint_is_asked_again_and_the_clock_stands_still(relayed):
    relay = relayed(busy, busy, ok)
    relay.grant.begin_turn(5.0)
    began = time.monotonic()
    assert relay.post({}).read() == OK
    took = time.monotonic() - began
    state = relay.grant.close()
    (exchange,) = state["exchanges"]
    assert (exchange["tries"], exchange["error"], exchange["status"]) == (3, "", 200)
    assert exchange["waited"] >= 0.4
    assert state["seconds"]["waiting"] >= 0.4
    assert state["seconds"]["answering"] + state["seconds"]["waiting"] <= took + 0.01


def test_an_outage_that_lasts_is_passed_on_in_the_endpoints_words(relayed):
    relay = relayed(lambda c: c.answer(b"down for good", "503 Unavailable", retry_after="0.2"))
    relay.grant.begin_turn(0.5)
    response = relay.post({})
    assert (response.status, response.read()) == (503, b"down for good")
    state = relay.grant.end_turn()
    assert (state["failure"], state["failure_status"]) == ("503 down for good", 503)
    asked = len(relay.endpoint.requests)
    assert asked == 3
    relay.post({})  # the agent's own next try
    assert len(relay.endpoint.requests) == asked + 1


@pytest.mark.parametrize("status", ["400 Bad", "401 Unauthorized", "404 Not Found", "500 Oops"])
def test_what_patience_does_not_mend_is_passed_on_at_once(relayed, status):
    relay = relayed(lambda c: c.answer(b"no", status))
    assert relay.post({}).status == int(status[:3])
    assert len(relay.endpoint.requests) == 1


def test_a_quota_that_is_used_up_is_passed_on_at_once(relayed):
    said = (
        b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'
    )
    relay = relayed(lambda c: c.answer(said, "429 Too Many Requests"))
    assert relay.post({}).status == 429
    assert len(relay.endpoint.requests) == 1


@pytest.mark.slow
def test_a_connection_that_drops_before_the_answer_is_made_again(relayed):
    relay = relayed(ok, lambda c: c.reset(), lambda c: (c.stream([], end=False), c.reset()), ok)
    assert relay.post({}).read() == OK
    assert relay.post({}).read() == OK  # over a kept connection that the endpoint has closed
    assert relay.exchanges()[1]["tries"] == 3


def test_a_dead_endpoint_is_named(relayed):
    relay = relayed(url="http://127.0.0.1:9/v1", patience=0.0)
    response = relay.post({})
    assert response.status == 502
    assert "http://127.0.0.1:9" in json.loads(response.read())["error"]["message"]


def test_a_connection_that_fails_has_a_patience_of_its_own(relayed):
    relay = relayed(url="http://127.0.0.1:9/v1", patience=60.0, connect_patience=0.5)
    assert relay.post({}).status == 502


# -- the clock --------------------------------------------------------------------------


def ended(relay) -> str:
    reasons: list[str] = []
    relay.grant.when_ended(reasons.append)
    wait_until(lambda: bool(reasons))
    return reasons[0]


def test_an_agent_that_asks_nothing_is_starved(relayed):
    relay = relayed(ok, startup=0.2)
    relay.grant.begin_turn(5.0)
    assert ended(relay) == "agent_starved"


def test_the_clock_runs_from_the_first_request_of_a_turn(relayed):
    relay = relayed(ok, seconds=0.3)
    relay.grant.begin_turn(5.0)
    time.sleep(0.4)
    relay.post({}).read()
    assert ended(relay) == "time"
    state = relay.grant.close()
    assert state["seconds"]["startup"] >= 0.4
    assert state["seconds"]["answering"] + state["seconds"]["own"] >= 0.3
    assert state["heard"]


def test_an_endpoint_that_never_answers_runs_into_the_clock_unheard(relayed):
    relay = relayed(lambda c: c.socket.recv(1), seconds=0.3)
    relay.grant.begin_turn(5.0)
    ask_in_vain(relay)
    assert ended(relay) == "time"
    assert not relay.grant.close()["heard"]


def test_waiting_for_an_endpoint_has_a_limit(relayed):
    relay = relayed(busy, waiting=0.3, patience=60.0)
    relay.grant.begin_turn(60.0)
    ask_in_vain(relay)
    assert ended(relay) == "endpoint_waiting"
    assert relay.grant.close()["seconds"]["waiting"] >= 0.3


# -- limits of the run ------------------------------------------------------------------


def test_a_task_may_ask_only_so_often(relayed):
    relay = relayed(ok, max_requests=2)
    assert [relay.post({}).status for _ in range(3)] == [200, 200, 403]
    assert ended(relay) == "task_budget"
    assert len(relay.endpoint.requests) == 2


def test_the_runs_budget_ends_every_attempt(relayed):
    priced = b'{"choices": [], "usage": {"prompt_tokens": 1000000, "completion_tokens": 0}}'
    relay = relayed(
        lambda c: c.answer(priced, content_type="application/json"),
        endpoint={"price": {"input": 0.5, "output": 1.5}},
        limits={"budget": 0.75},
    )
    other = relay.client.open("other", "model", seconds=60)
    relay.post({}).read()
    wait_until(lambda: relay.client.spent() == 0.5)
    assert relay.grant.end_turn()["ended"] == ""
    relay.post({}).read()
    assert ended(relay) == "run_budget"
    assert other.close()["ended"] == "run_budget"


def test_only_so_many_requests_go_out_at_a_time(relayed):
    inside, most, lock = [0], [0], threading.Lock()

    def slow(connection: Connection) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        with lock:
            inside[0] -= 1
        ok(connection)

    relay = relayed(slow, limits={"concurrency": 2})
    threads = [threading.Thread(target=lambda: relay.post({}).read()) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 2
    assert sum(one["waited"] for one in relay.exchanges()) > 0.05


def test_nothing_listens_when_the_process_that_started_it_is_killed():
    code = (
        "from pytest_pinchbench.relay.client import RelayProcess\n"
        "import time\n"
        "p = RelayProcess({}); print(p.port, p._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    relay = int(parent.stdout.readline().split()[1])
    parent.send_signal(signal.SIGKILL)
    parent.wait()

    def is_gone() -> bool:
        try:
            with open(f"/proc/{relay}/stat") as stat:
                return stat.read().split()[2] == "Z"
        except OSError:
            return True

    wait_until(is_gone)
    assert os.path.exists("/proc/self/stat")
