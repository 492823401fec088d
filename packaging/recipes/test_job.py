"""What `packaging/test recipes` has pytest run: the session is under zfolio run, and its data is right."""

import json
import os
import subprocess


def test_the_session_is_managed():
    assert "ZFOLIO_CONTROL" in os.environ


def test_data_is_right():
    blocks = [bytes([i % 251]) * 65536 for i in range(1536)]
    assert all(block == bytes([i % 251]) * 65536 for i, block in enumerate(blocks))
    words = ["zfolio", "stat", "--json", str(os.getpid())]
    seen = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    assert seen["total"]["pages_out"] > 0
