"""What Tab offers, and what a port that is taken says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from wattflow.cli.completion import policy_name, policy_names
from wattflow.model.errors import InvalidInput
from wattflow.runtime.home import Home
from wattflow.server.settings import ServerSettings, listen


def test_all_is_offered_only_where_several_policies_can_be_named() -> None:
    assert "all" in policy_names("") and "fifo,heft" in policy_names("fifo,he")
    assert "all" not in policy_name("") and policy_name("hef") == ["heft"]


def test_a_taken_port_says_who_may_have_it_and_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"127.0.0.1:{port}: another program listens there.*--port 0"):
            listen(ServerSettings(home=Home.of(str(tmp_path)), port=port))
