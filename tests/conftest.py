"""What holds for all tests."""

from __future__ import annotations

import os
import signal

# A shell that runs the tests in the background has SIGINT ignored, and so would every command that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test asks anything outside: a rank that is offline needs no way out, and what says so reaches steps of real jobs.
os.environ["HF_HUB_OFFLINE"] = "1"
