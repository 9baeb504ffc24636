"""MLPerf Storage: sizes that its rules ask for, and the rules themselves, held against patterns and results."""
