"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that runs the tests in the background has SIGINT ignored, and so would every command that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
