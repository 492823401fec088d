"""What `packaging/test recipes` does with the kernel of examples/jupyter, as a notebook's server does."""

import time

from jupyter_client.manager import KernelManager

WORK = """
import json, os, subprocess
blocks = [bytes([i % 251]) * 65536 for i in range(1536)]
assert all(block == bytes([i % 251]) * 65536 for i, block in enumerate(blocks))
words = ["zfolio", "stat", "--json", str(os.getpid())]
seen = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
assert seen["total"]["pages_out"] > 0, seen["total"]
"""


def main():
    manager = KernelManager(kernel_name="zfolio")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)

        def runs(code):
            content = client.execute_interactive(code, timeout=120)["content"]
            assert content["status"] == "ok", content

        runs(WORK)
        # Interrupted, it goes on with what it has.
        client.execute("import time; time.sleep(60)")
        time.sleep(2)
        manager.interrupt_kernel()
        content = client.get_shell_msg(timeout=30)["content"]
        assert content.get("ename") == "KeyboardInterrupt", content
        runs("assert len(blocks) == 1536")
        # Restarted, it has nothing.
        manager.restart_kernel()
        client.wait_for_ready(timeout=60)
        runs("assert 'blocks' not in dir() and 'ZFOLIO_CONTROL' in __import__('os').environ")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    print("right")


main()
