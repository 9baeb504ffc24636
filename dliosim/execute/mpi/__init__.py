"""The ranks of a job: how they wait for each other, agree, and end."""
