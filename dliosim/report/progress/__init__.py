"""Text that is shown while a command runs: its progress, and reports of stalls."""
