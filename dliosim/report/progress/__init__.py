"""Text that is shown while a command runs: its progress, a job in which nothing moves."""
