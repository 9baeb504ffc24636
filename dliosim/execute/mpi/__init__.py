"""The ranks of a job: waiting for each other, agreement, and the end of the job."""
