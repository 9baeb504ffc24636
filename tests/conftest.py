"""Property tests are never timed: machines that run them are busy. And all that tests start hears Ctrl-C."""

import signal

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# What a shell runs in its background ignores this signal, and so does whatever that starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)
