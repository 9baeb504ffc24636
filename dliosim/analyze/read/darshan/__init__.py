"""Logs of Darshan, their counters and the operations of DXT, read by PyDarshan in a process of its own."""
