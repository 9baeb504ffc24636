"""Text that is shown while a command runs: its progress, the live screen, a job in which nothing moves."""
