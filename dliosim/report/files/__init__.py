"""Files of results: results.json, ranks.h5, timeline.h5."""
